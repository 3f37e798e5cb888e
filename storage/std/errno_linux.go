package std

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"ringfence/storage"
)

// classify finds the sentinel for what the kernel said, or nil where the fault
// is not the disk's: no descriptors, no kernel memory, a wrong argument.
func classify(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return nil
	}
	switch errno {
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.EISDIR, unix.ENAMETOOLONG:
		return storage.ErrNotFound
	case unix.EEXIST:
		return storage.ErrExists
	case unix.ENOSPC, unix.EDQUOT:
		return storage.ErrFull
	case unix.EIO, unix.EROFS, unix.EUCLEAN, unix.EBADMSG, unix.EREMOTEIO, unix.EILSEQ,
		unix.ETIMEDOUT, unix.ENODATA, unix.ENOLINK, unix.EACCES, unix.EPERM:
		return storage.ErrFailed
	case unix.ENODEV, unix.ENXIO, unix.ESTALE, unix.ENOTCONN, unix.ESHUTDOWN, unix.ENOMEDIUM, unix.EHOSTDOWN:
		return storage.ErrOffline
	}
	return nil
}

// wrap makes the error that callers see. It passes on what is one already.
func (b *Backend) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var done *storage.DiskError
	if errors.As(err, &done) {
		return err
	}
	err = fmt.Errorf("%s: %w", name, err)
	if sentinel := classify(err); sentinel != nil {
		err = fmt.Errorf("%w: %w", sentinel, err)
	}
	return &storage.DiskError{Op: op, Disk: b.opts.Root, Err: err}
}

// retry repeats a call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// checkName refuses names that are no slash-separated relative paths, or hold
// ".." anywhere.
func checkName(name string) error {
	if !fs.ValidPath(name) {
		return fmt.Errorf("%w: invalid name", fs.ErrInvalid)
	}
	return nil
}
