package rs_test

const (
	goldenParity42 = "0845c784f6946853bd9bfba876ab2064"
	goldenParity   = uint32(0x8274bcf9)
)
