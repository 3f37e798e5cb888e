package local

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"ringfence/storage"
)

// presence recognises the disk that was opened. A Backend holds its root open
// and so sees a root that was removed or unmounted; but `rm -rf disk/*` leaves
// the root, and every open file goes on working in vain. Two looks at names,
// about a microsecond each, tell.
type presence struct {
	fs    vfs.FS
	paths []string
	ids   []fileID
}

// fileID is a file's identity; zero where the file system has none.
type fileID struct{ dev, ino uint64 }

// newPresence takes what is there now for what belongs there.
func newPresence(o Options) (*presence, error) {
	p, err := (&presence{fs: o.MetaFS}).with(o.path(nameA))
	if err != nil {
		return nil, err
	}
	return p.with(o.path(nameMeta))
}

func (p *presence) with(path string) (*presence, error) {
	fi, err := p.fs.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	return &presence{fs: p.fs, paths: append(slices.Clone(p.paths), path), ids: append(slices.Clone(p.ids), idOf(fi))}, nil
}

// withoutMeta is for as long as meta/ is replaced.
func (p *presence) withoutMeta() *presence {
	return &presence{fs: p.fs, paths: p.paths[:1], ids: p.ids[:1]}
}

// check fails with ErrOffline when a name is gone or is another file.
func (p *presence) check() error {
	for i, path := range p.paths {
		fi, err := p.fs.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: %s is gone", storage.ErrOffline, path)
		case err != nil:
			return fmt.Errorf("stat: %w", err)
		case idOf(fi) != p.ids[i]:
			return fmt.Errorf("%w: %s is another file than the one that was opened", storage.ErrOffline, path)
		}
	}
	return nil
}
