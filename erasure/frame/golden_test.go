package frame_test

// Sums of the name 01..02..03, part 9, index 4, block 77.
const (
	golden0    = "52ef71c330f511862f5a54bd2878b044"
	golden1    = "c4ac07d4abf5780de1f419f392b83cb2"
	golden4096 = "cb2bb70c9341a59567dfd8de75e18738"
	golden256K = "a8d3af3fd6727c764900fb87fc1a7458"
)
