package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// checkMachine looks at what all disks share.
func checkMachine() []finding {
	return []finding{checkKernel(), checkRing(), checkRingPolicy("/proc/sys/kernel/io_uring_disabled"), checkSeccomp("/proc/self/status"), checkFiles(), checkMemlock()}
}

func checkKernel() finding {
	f := finding{what: "kernel"}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		f.grade, f.is, f.advice = gradeWarn, "unknown", err.Error()
		return f
	}
	f.is = unix.ByteSliceToString(u.Release[:])
	var major, minor int
	// A release that doesn't scan is judged as too old, with the same advice.
	_, _ = fmt.Sscanf(f.is, "%d.%d", &major, &minor)
	switch {
	case major < 5 || major == 5 && minor < 6:
		f.grade, f.advice = gradeWarn, "Before Linux 5.6 paths can't be confined by openat2; a slower way is taken."
	case major == 5 && minor < 11:
		f.grade, f.advice = gradeWarn, "Before Linux 5.11 io_uring stays off; reads go through the standard engine."
	}
	return f
}

// checkRing asks for the smallest ring there is, which containers often forbid.
func checkRing() finding {
	f := finding{what: "io_uring", is: "available"}
	var params [120]byte // struct io_uring_params, all zero
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])), 0)
	if errno == 0 {
		if err := unix.Close(int(fd)); err != nil {
			f.grade, f.advice = gradeWarn, "closing a ring: "+err.Error()
		}
		return f
	}
	f.grade, f.is = gradeWarn, "not available: "+errno.Error()
	switch errno {
	case unix.ENOSYS:
		f.advice = "The kernel has none, or a seccomp filter hides it. The standard engine is used; nothing else is lost."
	case unix.EPERM:
		f.advice = "Forbidden by seccomp (the default of Docker) or by sysctl kernel.io_uring_disabled. The standard engine is used; nothing else is lost."
	default:
		f.advice = "The standard engine is used; nothing else is lost."
	}
	return f
}

// checkRingPolicy reads the sysctl by which an administrator forbids rings.
func checkRingPolicy(path string) finding {
	f := finding{what: "kernel.io_uring_disabled"}
	data, err := os.ReadFile(path)
	value := strings.TrimSpace(string(data))
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.is = "not there: kernels before 6.6 have none"
	case err != nil:
		f.grade, f.is = gradeWarn, "unknown: "+err.Error()
	case value == "0":
		f.is = "0: everybody may"
	case value == "1":
		f.grade, f.is = gradeWarn, "1: only the privileged and the members of group kernel.io_uring_group may"
		f.advice = "sysctl kernel.io_uring_disabled=0 allows rings."
	default:
		f.grade, f.is = gradeWarn, value+": nobody may"
		f.advice = "sysctl kernel.io_uring_disabled=0 allows rings."
	}
	return f
}

// checkSeccomp says whether a filter of system calls is in force, which is why
// rings are refused in most containers.
func checkSeccomp(path string) finding {
	f := finding{what: "seccomp", is: "unknown"}
	data, err := os.ReadFile(path)
	if err != nil {
		f.grade, f.is = gradeWarn, "unknown: "+err.Error()
		return f
	}
	for line := range strings.Lines(string(data)) {
		value, ok := strings.CutPrefix(line, "Seccomp:")
		if !ok {
			continue
		}
		switch strings.TrimSpace(value) {
		case "0":
			f.is = "no filter"
		case "2":
			f.is = "a filter is in force"
			f.advice = "Docker's own refuses io_uring: --security-opt seccomp=unconfined, or a profile that allows io_uring_setup, io_uring_enter and io_uring_register."
		default:
			f.is = "mode " + strings.TrimSpace(value)
		}
	}
	return f
}

// Descriptors: a connection each, and per disk the cached shard files and
// Pebble's tables.
const (
	filesNeeded = 4096
	filesWanted = 65536
)

func checkFiles() finding {
	f := finding{what: "open files"}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		f.grade, f.is, f.advice = gradeWarn, "unknown", err.Error()
		return f
	}
	// The Go runtime raises the soft limit to the hard one at start.
	f.is = fmt.Sprintf("up to %d", limit.Max)
	switch {
	case limit.Max < filesNeeded:
		f.grade, f.advice = gradeFail, fmt.Sprintf("At least %d are needed, %d are better: ulimit -n, LimitNOFILE= or --ulimit nofile.", filesNeeded, filesWanted)
	case limit.Max < filesWanted:
		f.grade, f.advice = gradeWarn, fmt.Sprintf("Every connection takes one; %d allow 10,000 of them: ulimit -n, LimitNOFILE= or --ulimit nofile.", filesWanted)
	}
	return f
}

func checkMemlock() finding {
	f := finding{what: "locked memory"}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		f.grade, f.is, f.advice = gradeWarn, "unknown", err.Error()
		return f
	}
	f.is = "unlimited"
	if limit.Max != unix.RLIM_INFINITY {
		f.is = fmt.Sprintf("up to %d MiB", limit.Max>>20)
	}
	if limit.Max < 64<<20 {
		f.advice = "Buffers registered with io_uring count against it; nothing else does."
	}
	return f
}

// fileSystems names the magic numbers of statfs(2) that disks are likely to
// meet, and says what is wrong with some.
var fileSystems = map[int64]struct {
	name   string
	grade  grade
	advice string
}{
	unix.EXT4_SUPER_MAGIC:      {name: "ext4"},
	unix.XFS_SUPER_MAGIC:       {name: "xfs"},
	unix.BTRFS_SUPER_MAGIC:     {name: "btrfs"},
	0x2fc12fc1:                 {name: "zfs"},
	unix.F2FS_SUPER_MAGIC:      {name: "f2fs"},
	unix.TMPFS_MAGIC:           {"tmpfs", gradeWarn, "All data is lost when the machine restarts."},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlayfs", gradeWarn, "This looks like the inside of a container: data goes when the container goes. Mount a volume."},
	unix.NFS_SUPER_MAGIC:       {"nfs", gradeWarn, "A network file system: one server behind several disks fails as one."},
	unix.SMB2_SUPER_MAGIC:      {"smb", gradeFail, "Its rename and fsync promise less than is needed."},
	unix.MSDOS_SUPER_MAGIC:     {"vfat", gradeFail, "Its rename and fsync promise less than is needed."},
	unix.FUSE_SUPER_MAGIC:      {"fuse", gradeWarn, "What fsync means here is up to the file system behind it."},
}

func checkDisk(disk string) []finding {
	at := existing(disk)
	what := "disk " + disk
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return []finding{{gradeFail, what, err.Error(), "Check the path and its permissions."}}
	}
	var out []finding
	if at != disk {
		out = append(out, finding{gradeOK, what, "does not exist yet, would be made in " + at, ""})
	}
	fs, known := fileSystems[int64(st.Type)]
	switch {
	case known:
		out = append(out, finding{fs.grade, what, fs.name, fs.advice})
	default:
		out = append(out, finding{gradeWarn, what, fmt.Sprintf("file system of type %#x", st.Type), "It is not among those that were tried."})
	}
	out = append(out, checkSpace(what, st))
	return append(out, checkWrites(what, at)...)
}

// fullPercent is the use from which a disk takes no new shards.
const fullPercent = 95

func checkSpace(what string, st unix.Statfs_t) finding {
	size := int64(st.Blocks) * st.Bsize
	free := int64(st.Bavail) * st.Bsize
	f := finding{what: what + " space", is: fmt.Sprintf("%d of %d MiB free", free>>20, size>>20)}
	switch {
	case size == 0:
		f.grade, f.advice = gradeFail, "The file system has no size."
	case (size-free)*100 >= size*fullPercent:
		f.grade, f.advice = gradeFail, fmt.Sprintf("From %d %% use on a disk takes no new data: make room.", fullPercent)
	case (size-free)*100 >= size*85:
		f.grade, f.advice = gradeWarn, fmt.Sprintf("From %d %% use on a disk takes no new data.", fullPercent)
	}
	return f
}

// checkWrites tries on a file what the engines do.
func checkWrites(what, dir string) []finding {
	f, err := os.CreateTemp(dir, ".ringfence-doctor-")
	if err != nil {
		advice := "Give the directory to the user that runs the gateway."
		if errors.Is(err, os.ErrPermission) {
			advice = fmt.Sprintf("Run: chown %d:%d %s", os.Getuid(), os.Getgid(), dir)
		}
		return []finding{{gradeFail, what, "can't be written: " + err.Error(), advice}}
	}
	name := f.Name()
	findings := tryFile(what, f)
	if err := errors.Join(f.Close(), os.Remove(name)); err != nil {
		findings = append(findings, finding{gradeFail, what, err.Error(), "Remove " + filepath.Base(name) + " by hand."})
	}
	return findings
}

func tryFile(what string, f *os.File) []finding {
	var out []finding
	fd := int(f.Fd())
	if _, err := f.Write(make([]byte, 8192)); err != nil {
		return append(out, finding{gradeFail, what, "write: " + err.Error(), "The disk can't be used."})
	}
	if err := unix.Fdatasync(fd); err != nil {
		return append(out, finding{gradeFail, what, "fdatasync: " + err.Error(), "The disk can't promise that anything stays written."})
	}
	var good, missing []string
	note := func(name string, err error) {
		if err == nil {
			good = append(good, name)
		} else {
			missing = append(missing, fmt.Sprintf("%s (%v)", name, err))
		}
	}
	note("fallocate", unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
	_, err := unix.Preadv2(fd, [][]byte{make([]byte, 4096)}, 0, unix.RWF_NOWAIT)
	if errors.Is(err, unix.EAGAIN) {
		err = nil // understood, and not in the page cache
	}
	note("RWF_NOWAIT", err)
	direct, err := unix.Open(f.Name(), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(direct)
	}
	note("O_DIRECT"+directAlignment(fd), err)
	result := finding{what: what + " abilities", is: strings.Join(good, ", ")}
	if len(missing) > 0 {
		result.is = strings.TrimPrefix(result.is+"; not "+strings.Join(missing, ", "), "; ")
		result.advice = "Reads and writes take a slower way; nothing else is lost."
	}
	return append(out, result)
}

// directAlignment says what O_DIRECT asks of offsets and memory, "" where the
// kernel doesn't tell.
func directAlignment(fd int) string {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil || st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align == 0 {
		return ""
	}
	return fmt.Sprintf(" (aligned to %d, memory to %d)", st.Dio_offset_align, st.Dio_mem_align)
}

// checkSameDevice warns of disks that would fail together.
func checkSameDevice(disks []string) []finding {
	byDevice := map[uint64][]string{}
	var order []uint64
	for _, d := range disks {
		var st unix.Stat_t
		if err := unix.Stat(existing(d), &st); err != nil {
			continue // checkDisk has said so
		}
		if byDevice[st.Dev] == nil {
			order = append(order, st.Dev)
		}
		byDevice[st.Dev] = append(byDevice[st.Dev], d)
	}
	var out []finding
	for _, dev := range order {
		if same := byDevice[dev]; len(same) > 1 {
			out = append(out, finding{gradeWarn, "devices", fmt.Sprintf("%d disks share one file system: %s", len(same), strings.Join(same, ", ")),
				"Fine for trying things out. Parity protects against the loss of disks; these are lost together."})
		}
	}
	return out
}
