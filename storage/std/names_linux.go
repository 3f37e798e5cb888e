package std

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// openBeneath opens a name under the root by openat2.
func (b *Backend) openBeneath(name string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC),
		Mode:    uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	const attempts = 100
	for n := 0; ; n++ {
		fd, err := unix.Openat2(b.root.fd, name, &how)
		// EAGAIN: something was renamed in the meantime and the kernel is not
		// sure that the name stayed beneath the root.
		if (errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN)) && n < attempts {
			continue
		}
		return fd, err
	}
}

// open opens a name under the root without following symbolic links.
func (b *Backend) open(name string, flags int, mode uint32) (int, error) {
	if !b.walks {
		return b.openBeneath(name, flags, mode)
	}
	at := b.root.fd
	for {
		first, rest, more := strings.Cut(name, "/")
		how, perm := flags, mode
		if more {
			how, perm = unix.O_PATH|unix.O_DIRECTORY, 0
		}
		var fd int
		err := retry(func() (err error) {
			fd, err = unix.Openat(at, first, how|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
			return err
		})
		if at != b.root.fd {
			err = errors.Join(err, unix.Close(at))
		}
		if err != nil || !more {
			return fd, err
		}
		at, name = fd, rest
	}
}

// withFolder calls f with the folder that holds name and name's last element.
func (b *Backend) withFolder(name string, f func(folder int, base string) error) error {
	dir, base := path.Split(name)
	if dir == "" {
		return f(b.root.fd, base)
	}
	fd, err := b.open(strings.TrimSuffix(dir, "/"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f(fd, base), unix.Close(fd))
}

// preallocMax bounds what Create sets aside. Beyond it the gain is nil, and a
// size that a client merely announced could fill the disk for everybody.
const preallocMax = 256 << 20

// Create implements storage.Backend.
func (b *Backend) Create(ctx context.Context, name string, sizeHint int64) (storage.File, error) {
	const op = "create"
	if err := b.enter(ctx, op, name); err != nil {
		return nil, err
	}
	defer b.leave()
	if sizeHint > 0 && !b.space.fits(b, sizeHint) {
		return nil, b.wrap(op, name, fmt.Errorf("%w: no room for %d bytes", storage.ErrFull, sizeHint))
	}
	fd, err := b.open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, b.wrap(op, name, err)
	}
	f := b.file(fd, name)
	if sizeHint <= 0 {
		return f, nil
	}
	size := min(sizeHint, preallocMax)
	err = retry(func() error { return b.allocate(fd, size) })
	if errors.Is(classify(err), storage.ErrFull) {
		undo := b.withFolder(name, func(folder int, base string) error { return unix.Unlinkat(folder, base, 0) })
		return nil, errors.Join(b.wrap(op, name, err), f.Close(), b.wrap(op, name, undo))
	}
	if err == nil { // else the file system can't, and needs not
		f.reserved = size
	}
	return f, nil
}

// allocate sets space aside. The file's size stays what was written.
func allocate(fd int, n int64) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, n) }

// Open implements storage.Backend.
func (b *Backend) Open(ctx context.Context, name string) (storage.File, error) {
	const op = "open"
	if err := b.enter(ctx, op, name); err != nil {
		return nil, err
	}
	defer b.leave()
	// O_NONBLOCK keeps a planted pipe from hanging the open.
	fd, err := b.open(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ENXIO) { // a socket, or a device without a driver
			err = errors.Join(storage.ErrNotFound, err)
		}
		return nil, b.wrap(op, name, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.Join(storage.ErrNotFound, errors.New("not a regular file"))
	}
	if err != nil {
		return nil, b.wrap(op, name, errors.Join(err, unix.Close(fd)))
	}
	return b.file(fd, name), nil
}

// Rename implements storage.Backend.
func (b *Backend) Rename(ctx context.Context, source, target string) error {
	const op = "rename"
	if err := b.enter(ctx, op, source, target); err != nil {
		return err
	}
	defer b.leave()
	err := b.withFolder(source, func(from int, old string) error {
		return b.withFolder(target, func(to int, new string) error {
			return retry(func() error { return unix.Renameat(from, old, to, new) })
		})
	})
	return b.wrap(op, source, err)
}

// Remove implements storage.Backend.
func (b *Backend) Remove(ctx context.Context, name string) error {
	const op = "remove"
	if err := b.enter(ctx, op, name); err != nil {
		return err
	}
	defer b.leave()
	err := b.withFolder(name, func(folder int, base string) error {
		return retry(func() error { return unix.Unlinkat(folder, base, 0) })
	})
	return b.wrap(op, name, err)
}

// Mkdir implements storage.Backend. The folder is for the owner alone.
func (b *Backend) Mkdir(ctx context.Context, name string) error {
	const op = "make folder"
	if err := b.enter(ctx, op, name); err != nil {
		return err
	}
	defer b.leave()
	err := b.withFolder(name, func(folder int, base string) error {
		return retry(func() error { return unix.Mkdirat(folder, base, 0o700) })
	})
	if errors.Is(err, unix.EEXIST) {
		// Something is there; only a folder is no error.
		var fd int
		if fd, err = b.open(name, unix.O_PATH|unix.O_DIRECTORY, 0); err == nil {
			err = unix.Close(fd)
		} else {
			err = errors.Join(storage.ErrExists, err)
		}
	}
	return b.wrap(op, name, err)
}

// ReadDir implements storage.Backend.
func (b *Backend) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	const op = "read folder"
	if err := b.enter(ctx, op, name); err != nil {
		return nil, err
	}
	defer b.leave()
	fd, err := b.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, b.wrap(op, name, err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(b.opts.Root, filepath.FromSlash(name)))
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, b.wrap(op, name, err)
	}
	slices.SortFunc(entries, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
	return entries, nil
}
