package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"ringfence/storage"
)

// sentinels are the errors of package storage; what wraps one of them is
// classified already.
var sentinels = []error{
	storage.ErrNotFound, storage.ErrExists, storage.ErrCorrupt, storage.ErrFull,
	storage.ErrOffline, storage.ErrFailed, storage.ErrNoBuffer,
}

// classify is the one place where a raw error becomes one of the sentinels.
// A context's error stays what it is: the disk did nothing wrong.
func classify(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return mark(storage.ErrFull, err)
	}
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return err
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return mark(storage.ErrNotFound, err)
	case errors.Is(err, fs.ErrExist):
		return mark(storage.ErrExists, err)
	}
	return mark(storage.ErrFailed, err)
}

// mark makes err wrap sentinel as well as what it wraps.
func mark(sentinel, err error) error {
	if errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// transient reports whether the process or the caller ran short of something,
// which says nothing about the disk.
func transient(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.Is(err, storage.ErrNoBuffer)
}

// wrap says which operation on this disk failed. nil stays nil.
func (o Options) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	var de *storage.DiskError
	if errors.As(err, &de) && de.Disk == o.Root {
		return err // said already
	}
	return &storage.DiskError{Op: op, Disk: o.Root, Err: classify(err)}
}
