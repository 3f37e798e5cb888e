package bench

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// fill writes what a bench file holds at off: each word of eight bytes is a
// hash of its number.
func fill(p []byte, off int64) {
	word := uint64(off) / 8
	if skip := int(uint64(off) % 8); skip > 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], mix(word))
		p = p[copy(p, w[skip:]):]
		word++
	}
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, mix(word))
		word++
	}
	if len(p) > 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], mix(word))
		copy(p, w[:])
	}
}

// compare checks that p is what a bench file holds at off.
func compare(p []byte, off int64) error {
	var want [pageBytes]byte
	for done := 0; done < len(p); {
		n := min(len(p)-done, len(want))
		fill(want[:n], off+int64(done))
		if got := p[done : done+n]; string(got) != string(want[:n]) {
			for i := range got {
				if got[i] != want[i] {
					at := off + int64(done+i)
					return fmt.Errorf("byte %d is %#02x, want %#02x", at, got[i], want[i])
				}
			}
		}
		done += n
	}
	return nil
}

// Prepare makes the file if there is none, durably, and otherwise makes sure
// that it is a regular file of that size. It never changes what exists and
// never follows a symbolic link.
func Prepare(f File) (created bool, err error) {
	if f.Size < 1 || f.Size > FileSizeMax {
		return false, usagef("file size is %d, must be 1 to %d", f.Size, int64(FileSizeMax))
	}
	fd, err := open(f.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if errors.Is(err, unix.EEXIST) {
		fd, err = f.open(0)
		if err != nil {
			return false, err
		}
		return false, unix.Close(fd)
	}
	if err != nil {
		return false, fmt.Errorf("create %s: %w", f.Path, err)
	}
	err = writeAll(fd, f.Size)
	if err == nil {
		err = unix.Fsync(fd)
	}
	err = errors.Join(err, unix.Close(fd))
	if err != nil { // it is ours: nobody had one before
		return false, fmt.Errorf("create %s: %w", f.Path, errors.Join(err, unix.Unlink(f.Path)))
	}
	return true, nil
}

func writeAll(fd int, size int64) error {
	if err := unix.Fallocate(fd, 0, 0, size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("reserve %d bytes: %w", size, err)
	}
	block := make([]byte, 1<<20)
	for off := int64(0); off < size; {
		p := block[:min(size-off, int64(len(block)))]
		fill(p, off)
		n, err := unix.Pwrite(fd, p, off)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		default:
			off += int64(n)
		}
	}
	return nil
}

// open opens the file and refuses all but a regular one of the right size.
func (f File) open(flags int) (fd int, err error) {
	// O_NONBLOCK keeps a planted pipe from hanging the open.
	fd, err = open(f.Path, unix.O_RDONLY|unix.O_NONBLOCK|flags, 0)
	if errors.Is(err, unix.ELOOP) {
		return -1, fmt.Errorf("%s is a symbolic link: %w", f.Path, err)
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", f.Path, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
		err = fmt.Errorf("stat %s: %w", f.Path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = fmt.Errorf("%s is not a regular file", f.Path)
	case st.Size != f.Size:
		err = fmt.Errorf("%s has %d bytes, not %d: give its size, or another name", f.Path, st.Size, f.Size)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// open never follows a symbolic link in the last element.
func open(path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
