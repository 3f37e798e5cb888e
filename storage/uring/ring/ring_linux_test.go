package ring

import (
	"testing"
)

func TestSmoke(t *testing.T) {
	r, err := New(Options{Entries: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v %s", r.Info(), SetupName(r.Info().Setup))
	for i := range 8 {
		if !r.Push(SQE{Opcode: OpNop, UserData: uint64(i)}) {
			t.Fatal(i)
		}
	}
	if r.Push(SQE{}) || r.Queued() != 8 {
		t.Fatal("full")
	}
	if err := r.Enter(8, -1); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		c, ok := r.Next()
		t.Log(i, c, ok)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
