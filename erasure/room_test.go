package erasure

import (
	"errors"
	"testing"

	"ringfence/storage"
)

// fullDisk is a disk that takes no new data.
type fullDisk struct{ storage.Disk }

func (fullDisk) Health() storage.Health {
	return storage.Health{State: storage.StateFull, Reason: "test"}
}

// On full disks nothing is taken that makes the metadata grow, small objects
// and uploads included, while reads and deletions go on.
func TestFullDisksStillDelete(t *testing.T) {
	ts := realStore(t)
	small, large := text(1, 100), text(2, 100_000)
	ts.mustPut("b", "small", small)
	ts.mustPut("b", "large", large)
	up := ts.mustUpload("upload")
	well := ts.sets[0].disks
	setDisks := func(full int) {
		disks := append([]storage.Disk(nil), well...)
		for i := range full {
			disks[i] = fullDisk{well[i]}
		}
		ts.sets[0].disks = disks
	}
	setDisks(2) // two of six: four go on
	ts.mustPut("b", "another", small)
	setDisks(3)
	for key, body := range map[string][]byte{"empty": nil, "small": small, "large": large} {
		if _, err := ts.Put(t.Context(), "b", key, input(body)); !errors.Is(err, ErrFull) {
			t.Errorf("put %s: %v", key, err)
		}
	}
	if _, err := ts.CreateUpload(t.Context(), "b", "k", CreateUploadInput{}); !errors.Is(err, ErrFull) {
		t.Errorf("create upload: %v", err)
	}
	if _, err := ts.PutPart(t.Context(), "b", "upload", up.UploadID, 1, input(small)); !errors.Is(err, ErrFull) {
		t.Errorf("put part: %v", err)
	}
	ts.wantBody("b", "small", small)
	ts.wantBody("b", "large", large)
	for _, key := range []string{"small", "large", "another"} {
		if _, err := ts.Delete(t.Context(), "b", key, DeleteInput{}); err != nil {
			t.Errorf("delete %s: %v", key, err)
		}
	}
	if err := ts.AbortUpload(t.Context(), "b", "upload", up.UploadID); err != nil {
		t.Errorf("abort: %v", err)
	}
	setDisks(0)
	ts.mustPut("b", "small", small)
}
