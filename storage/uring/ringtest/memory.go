package ringtest

import "unsafe"

// memory is n bytes at an address that an entry carries, as a kernel sees them:
// whether they still belong to whom pushed the entry is what tests find out.
func memory(addr uint64, n int) []byte {
	at := uintptr(addr)
	// Go's rules know no way from a number to memory. The number came from a
	// pointer that the pusher keeps alive.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n)
}

func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
