package quorumlog

import (
	"os"
	"testing"

	"github.com/rs/zerolog"
)

func TestDbg(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip()
	}
	s := newSim(t, *seedFlag, rules{})
	s.debug = true
	s.log = zerolog.New(zerolog.ConsoleWriter{Out: os.Stdout})
	s.restart()
	t.Log(s.run(*runsFlag))
}
