package local

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"ringfence/storage"
)

// presence recognises the disk that was opened. A Backend holds its root open
// and so sees a root that was removed or unmounted; but `rm -rf disk/*` leaves
// the root, and every open file goes on working in vain. Two looks at names,
// about a microsecond each, tell.
type presence struct {
	fs    vfs.FS
	paths [2]string
	ids   [2]fileID
}

// fileID is a file's identity; zero where the file system has none.
type fileID struct{ dev, ino uint64 }

func newPresence(o Options) (presence, error) {
	p := presence{fs: o.MetaFS, paths: [2]string{o.path(nameA), o.path(nameMeta)}}
	for i, path := range p.paths {
		fi, err := p.fs.Stat(path)
		if err != nil {
			return presence{}, fmt.Errorf("stat %s: %w", path, err)
		}
		p.ids[i] = idOf(fi)
	}
	return p, nil
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
