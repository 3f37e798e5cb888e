package bench

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prepareCache brings the page cache into the state that a plan starts from,
// and proves it.
func prepareCache(ctx context.Context, fd int, p plan) error {
	if p.load.Access != Warm {
		if err := evict(fd); err != nil {
			return err
		}
		share, err := resident(fd, p.size)
		if err != nil {
			return err
		}
		if share > 0.01 {
			return fmt.Errorf("%.0f %% of the file stays in the page cache: its file system does not let go, or another program maps it", 100*share)
		}
	}
	keep := p.size
	switch p.load.Access {
	case Cold:
		return nil
	case Mixed:
		keep = p.hot
	}
	if err := load(ctx, fd, keep); err != nil {
		return err
	}
	share, err := resident(fd, keep)
	if err != nil {
		return err
	}
	if share < 0.99 {
		return fmt.Errorf("%.0f %% of %d bytes stay in the page cache: not enough memory", 100*share, keep)
	}
	return nil
}

// evict drops a file from the page cache. Pages that were written must be on
// the disk for that.
func evict(fd int) error {
	if err := unix.Fdatasync(fd); err != nil {
		return fmt.Errorf("sync before dropping the cache: %w", err)
	}
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("drop the cache: %w", err)
	}
	return nil
}

// load reads the first size bytes, and no further: readahead would make cold
// ranges warm after everybody has looked.
func load(ctx context.Context, fd int, size int64) error {
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM); err != nil {
		return fmt.Errorf("read the file ahead: %w", err)
	}
	block := make([]byte, 1<<20)
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Pread(fd, block[:min(size-off, int64(len(block)))], off)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read the file ahead: %w", err)
		case n == 0:
			return fmt.Errorf("read the file ahead: it ends at %d", off)
		default:
			off += int64(n)
		}
	}
	return nil
}

// resident is the share of the first size bytes that the page cache holds.
func resident(fd int, size int64) (float64, error) {
	const window = 1 << 30 // mapped at once
	page := int64(unix.Getpagesize())
	seen := make([]byte, window/page)
	var have, all int64
	for off := int64(0); off < size; off += window {
		n := min(size-off, window)
		mem, err := unix.MmapPtr(fd, off, nil, uintptr(n), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return 0, fmt.Errorf("look into the page cache: %w", err)
		}
		pages := (n + page - 1) / page
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(mem), uintptr(n), uintptr(unsafe.Pointer(unsafe.SliceData(seen))))
		if err := unix.MunmapPtr(mem, uintptr(n)); err != nil {
			return 0, fmt.Errorf("look into the page cache: %w", err)
		}
		if errno != 0 {
			return 0, fmt.Errorf("look into the page cache: %w", errno)
		}
		for _, s := range seen[:pages] {
			have += int64(s & 1)
		}
		all += pages
	}
	return float64(have) / float64(max(all, 1)), nil
}
