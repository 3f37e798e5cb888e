package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// requirements is how many rows docs/engine-requirements.md has.
const requirements = 106

var proof = regexp.MustCompile("`([a-z0-9_/]+_test\\.go): (Test[A-Za-z0-9_]+|Example[A-Za-z0-9_]*)`")

// TestEveryEngineRequirementIsProved keeps the table of what the read engines
// must do true: every row names tests that exist, or the decision record that
// says why it does not hold here.
func TestEveryEngineRequirementIsProved(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "engine-requirements.md"))
	if err != nil {
		t.Fatal(err)
	}
	next := 1
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue
		}
		if n != next {
			t.Errorf("row %d follows row %d", n, next-1)
		}
		next = n + 1
		if err := checkProof(root, cells[3]); err != nil {
			t.Errorf("row %d: %v", n, err)
		}
	}
	if next != requirements+1 {
		t.Errorf("%d rows, want %d", next-1, requirements)
	}
}

func checkProof(root, cell string) error {
	tests := proof.FindAllStringSubmatch(cell, -1)
	adrs := regexp.MustCompile(`\(adr/([0-9]{4}-[a-z0-9-]+\.md)\)`).FindAllStringSubmatch(cell, -1)
	if len(tests)+len(adrs) == 0 {
		return fmt.Errorf("names neither test nor decision: %s", cell)
	}
	for _, m := range tests {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m[1])))
		if err != nil {
			return err
		}
		if !strings.Contains(string(source), "\nfunc "+m[2]+"(") {
			return fmt.Errorf("%s has no %s", m[1], m[2])
		}
	}
	for _, m := range adrs {
		if _, err := os.Stat(filepath.Join(root, "docs", "adr", m[1])); err != nil {
			return err
		}
	}
	return nil
}
