package ring

import "unsafe"

// Offsets of the mapped areas (linux/io_uring.h: IORING_OFF_*).
const (
	offSQRing = 0
	offCQRing = 0x8000000
	offSQEs   = 0x10000000
)

// Flags of io_uring_enter (IORING_ENTER_*).
const (
	enterGetEvents = 1 << 0
	enterExtArg    = 1 << 3
)

// Flags that the kernel shows in the submission queue (IORING_SQ_*).
const sqCQOverflow = 1 << 1

// Operations of io_uring_register (enum io_uring_register_op), and
// IORING_RSRC_REGISTER_SPARSE.
const (
	unregisterBuffers      = 1
	registerBuffers2       = 15
	registerBuffersUpdate  = 16
	registerIOWQMaxWorkers = 19

	rsrcSparse = 1 << 0
)

// params is struct io_uring_params.
type params struct {
	sqEntries    uint32
	cqEntries    uint32
	flags        uint32
	sqThreadCPU  uint32
	sqThreadIdle uint32
	features     uint32
	wqFD         uint32
	_            [3]uint32
	sq           sqOffsets
	cq           cqOffsets
}

// sqOffsets is struct io_sqring_offsets.
type sqOffsets struct {
	head, tail, mask, entries uint32
	flags, dropped, array     uint32
	_                         uint32
	_                         uint64
}

// cqOffsets is struct io_cqring_offsets.
type cqOffsets struct {
	head, tail, mask, entries uint32
	overflow, cqes, flags     uint32
	_                         uint32
	_                         uint64
}

// waitArg is struct io_uring_getevents_arg.
type waitArg struct {
	sigmask     uint64
	sigmaskSize uint32
	minWaitUsec uint32
	timeout     uint64 // address of a timespec
}

// timespec is struct __kernel_timespec, the same on 32 bits.
type timespec struct {
	sec, nsec int64
}

// rsrcRegister is struct io_uring_rsrc_register.
type rsrcRegister struct {
	nr    uint32
	flags uint32
	_     uint64
	data  uint64 // address of iovecs
	tags  uint64
}

// rsrcUpdate is struct io_uring_rsrc_update2.
type rsrcUpdate struct {
	offset uint32
	_      uint32
	data   uint64 // address of iovecs
	tags   uint64
	nr     uint32
	_      uint32
}

var (
	_ = [1]int{}[unsafe.Sizeof(params{})-120]
	_ = [1]int{}[unsafe.Offsetof(params{}.features)-20]
	_ = [1]int{}[unsafe.Offsetof(params{}.sq)-40]
	_ = [1]int{}[unsafe.Offsetof(params{}.cq)-80]
	_ = [1]int{}[unsafe.Sizeof(sqOffsets{})-40]
	_ = [1]int{}[unsafe.Offsetof(sqOffsets{}.array)-24]
	_ = [1]int{}[unsafe.Sizeof(cqOffsets{})-40]
	_ = [1]int{}[unsafe.Offsetof(cqOffsets{}.cqes)-20]
	_ = [1]int{}[unsafe.Sizeof(waitArg{})-24]
	_ = [1]int{}[unsafe.Offsetof(waitArg{}.timeout)-16]
	_ = [1]int{}[unsafe.Sizeof(timespec{})-16]
	_ = [1]int{}[unsafe.Sizeof(rsrcRegister{})-32]
	_ = [1]int{}[unsafe.Offsetof(rsrcRegister{}.data)-16]
	_ = [1]int{}[unsafe.Sizeof(rsrcUpdate{})-32]
	_ = [1]int{}[unsafe.Offsetof(rsrcUpdate{}.data)-8]
	_ = [1]int{}[unsafe.Offsetof(rsrcUpdate{}.nr)-24]
)
