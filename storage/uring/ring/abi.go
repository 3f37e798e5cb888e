package ring

import (
	"strings"
	"unsafe"
)

// Operations (linux/io_uring.h: enum io_uring_op).
const (
	OpNop         = 0
	OpReadv       = 1
	OpReadFixed   = 4
	OpPollAdd     = 6
	OpTimeout     = 11
	OpAsyncCancel = 14
	OpRead        = 22
)

// CurrentPosition in SQE.Off reads from where the file stands, as read(2) does.
const CurrentPosition = ^uint64(0)

// Flags of an entry (IOSQE_*).
const (
	FlagFixedFile = 1 << 0
	FlagAsync     = 1 << 4
)

// Flags of the set-up (IORING_SETUP_*).
const (
	SetupIOPoll       = 1 << 0
	SetupSQPoll       = 1 << 1
	SetupCQSize       = 1 << 3
	SetupClamp        = 1 << 4
	SetupSubmitAll    = 1 << 7
	SetupCoopTaskrun  = 1 << 8
	SetupTaskrunFlag  = 1 << 9
	SetupSingleIssuer = 1 << 12
	SetupDeferTaskrun = 1 << 13
)

// Features of the kernel (IORING_FEAT_*).
const (
	FeatSingleMmap = 1 << 0
	FeatNoDrop     = 1 << 1
	FeatExtArg     = 1 << 8
)

// SetupName says in a word how completions get to the thread of a ring that was
// set up with the flags: "defer-taskrun", "coop-taskrun" or "plain".
func SetupName(flags uint32) string {
	switch {
	case flags&SetupDeferTaskrun != 0:
		return "defer-taskrun"
	case flags&SetupCoopTaskrun != 0:
		return "coop-taskrun"
	}
	return "plain"
}

// OpName names an operation, for messages.
func OpName(op uint8) string {
	switch op {
	case OpNop:
		return "nop"
	case OpReadv:
		return "readv"
	case OpReadFixed:
		return "read-fixed"
	case OpPollAdd:
		return "poll-add"
	case OpTimeout:
		return "timeout"
	case OpAsyncCancel:
		return "async-cancel"
	case OpRead:
		return "read"
	}
	return "op " + strings.TrimLeft(string([]byte{'0' + op/100, '0' + op/10%10, '0' + op%10}), "0")
}

// The layout is the kernel's: these don't compile when it is not.
var (
	_ = [1]int{}[unsafe.Sizeof(SQE{})-64]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.FD)-4]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.Off)-8]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.Addr)-16]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.Len)-24]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.OpFlags)-28]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.UserData)-32]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.BufIndex)-40]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.Persona)-42]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.FileIdx)-44]
	_ = [1]int{}[unsafe.Offsetof(SQE{}.Addr3)-48]
	_ = [1]int{}[unsafe.Sizeof(CQE{})-16]
	_ = [1]int{}[unsafe.Offsetof(CQE{}.Res)-8]
	_ = [1]int{}[unsafe.Offsetof(CQE{}.Flags)-12]
)
