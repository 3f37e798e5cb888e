package quorumlog

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
)

// A model of the protocol, far smaller than the engine and independent of it:
// one key, six disks, one coordinator that restarts. It shows that the rules
// suffice and that each is needed: with one rule removed, some run must return
// a value that the strict semantics don't allow. An operation that failed may
// show up until the next acknowledged write or successful read; after that the
// matter is decided.
//
// Replay: go test -run TestModel -seed N -runs 1

var (
	seedFlag = flag.Uint64("seed", 0, "first seed of models and simulations; 0: the default")
	runsFlag = flag.Int("runs", 0, "number of runs; 0: the default")
)

const (
	modelN, modelW = 6, 4
	modelR         = modelN - modelW + 1
	modelSteps     = 80
	noValue        = 0  // the key does not exist
	barrierEntry   = -1 // an entry that says nothing about the key
)

// modelRules are the rules that a mutant breaks.
type modelRules struct {
	blankVotes, noEpoch, noPromise, ackEarly, noRepair, noBarrier, readLagging, noWitness, fewVoters bool
}

// modelFaults is what a run may suffer beside crashes and outages.
type modelFaults struct {
	blanks  int  // disks that may be replaced by blank ones at once
	forgets int  // disks that may lose synced writes at once
	deep    bool // they lose so much that their peers know it
}

type modelEntry struct {
	mark
	val     int
	witness [modelN]mark
}

type model struct {
	rules  modelRules
	faults modelFaults
	rng    *rand.Rand

	online, blank, forgot [modelN]bool
	inSync                [modelN]bool
	log                   [modelN][]modelEntry
	promised              [modelN]uint64

	// The coordinator's memory.
	leader  []modelEntry
	epoch   uint64
	witness [modelN]mark
	down    bool

	allowed map[int]bool // what a read may return
	next    int
	modelCounts
}

type modelCounts struct{ acked, failed, reads int }

// run returns false when a read returned what it may not.
func (m *model) run() bool {
	m.down, m.next, m.allowed = true, 1, map[int]bool{noValue: true}
	for i := range m.online {
		m.online[i] = true
	}
	for range modelSteps {
		if !m.step() {
			return false
		}
	}
	return true
}

func (m *model) step() bool {
	switch p := m.rng.IntN(100); {
	case p < 12:
		i := m.rng.IntN(modelN)
		if !m.online[i] || m.count(m.online) > modelR {
			m.online[i] = !m.online[i]
		}
		m.inSync[i] = m.inSync[i] && m.online[i]
	case p < 24:
		m.outage()
	case p < 28:
		m.replace()
	case p < 32:
		m.powerLoss()
	case p < 42:
		m.down = true
	case p < 50:
		if c := m.disks(func(i int) bool { return m.online[i] && !m.inSync[i] }); !m.down && len(c) > 0 {
			m.catchUp(c[m.rng.IntN(len(c))])
		}
	case p < 78:
		m.write()
	default:
		return m.read()
	}
	return true
}

func (m *model) count(set [modelN]bool) (n int) {
	for _, in := range set {
		if in {
			n++
		}
	}
	return n
}

func (m *model) disks(ok func(i int) bool) (all []int) {
	for i := range modelN {
		if ok(i) {
			all = append(all, i)
		}
	}
	return all
}

// some picks n of all at random.
func (m *model) some(all []int, n int) []int {
	all = slices.Clone(all)
	m.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:n]
}

// outage leaves a random set of disks online.
func (m *model) outage() {
	keep := m.some(m.disks(func(int) bool { return true }), modelR+m.rng.IntN(modelN-modelR+1))
	for i := range modelN {
		m.online[i] = slices.Contains(keep, i)
		m.inSync[i] = m.inSync[i] && m.online[i]
	}
}

// replace exchanges a disk for a blank one.
func (m *model) replace() {
	if m.count(m.blank) >= m.faults.blanks {
		return
	}
	i := m.rng.IntN(modelN)
	m.log[i], m.promised[i], m.blank[i], m.inSync[i], m.forgot[i] = nil, 0, true, false, false
}

// powerLoss restarts the coordinator and has a disk lose a suffix of its log
// that it had reported as synced.
func (m *model) powerLoss() {
	if m.count(m.forgot) >= m.faults.forgets {
		return
	}
	m.down = true
	i := m.rng.IntN(modelN)
	keep := len(m.log[i])
	if m.faults.deep {
		// Less than every peer that remembers anything saw.
		for j := range modelN {
			if j != i && !m.blank[j] && !m.forgot[j] {
				seen := m.knows(j)[i]
				for keep > 0 && m.log[i][keep-1].compare(seen) >= 0 {
					keep--
				}
			}
		}
	}
	if keep == 0 || m.blank[i] {
		return
	}
	m.log[i] = m.log[i][:m.rng.IntN(keep)]
	m.promised[i] = m.end(i).epoch
	m.forgot[i], m.inSync[i] = true, false
}

// end is the point that disk i reports.
func (m *model) end(i int) mark {
	if n := len(m.log[i]); n > 0 {
		return m.log[i][n-1].mark
	}
	return mark{}
}

// knows is what disk i remembers of its peers.
func (m *model) knows(i int) [modelN]mark {
	if n := len(m.log[i]); n > 0 {
		return m.log[i][n-1].witness
	}
	return [modelN]mark{}
}

func (m *model) catchUp(i int) {
	if m.rules.noRepair {
		m.log[i] = append(slices.Clone(m.log[i]), m.leader[min(len(m.log[i]), len(m.leader)):]...)
	} else {
		m.log[i] = slices.Clone(m.leader)
	}
	m.blank[i], m.forgot[i], m.inSync[i] = false, false, true
	m.promised[i] = max(m.promised[i], m.epoch)
	m.witness[i] = m.end(i)
}

// voters are the disks that may say what the log is.
func (m *model) voters(online []int) []int {
	var seen [modelN]mark
	for _, i := range online {
		for j, w := range m.knows(i) {
			if w.compare(seen[j]) > 0 {
				seen[j] = w
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(online), func(i int) bool {
		return m.blank[i] && !m.rules.blankVotes ||
			m.end(i).compare(seen[i]) < 0 && !m.rules.noWitness
	})
}

func (m *model) longer(a, b int) bool {
	if m.rules.noEpoch {
		return len(m.log[a]) > len(m.log[b])
	}
	return m.end(a).compare(m.end(b)) > 0
}

func (m *model) recover() bool {
	online := m.disks(func(i int) bool { return m.online[i] })
	voters := m.voters(online)
	if len(voters) < modelR {
		return false
	}
	if m.faults.forgets == 0 || m.rules.fewVoters {
		// Without forgetful disks it doesn't matter who answers in time.
		voters = m.some(voters, modelR+m.rng.IntN(len(voters)-modelR+1))
	}
	epoch := uint64(0)
	for _, i := range voters {
		epoch = max(epoch, m.end(i).epoch)
		if !m.rules.noPromise {
			epoch = max(epoch, m.promised[i])
		}
	}
	epoch++
	if len(online) < modelW {
		return false
	}
	if !m.rules.noPromise && !m.some90(online, func(i int) { m.promised[i] = max(m.promised[i], epoch) }) {
		return false // crashed while promising
	}
	best := voters[0]
	for _, i := range voters {
		if m.longer(i, best) {
			best = i
		}
	}
	m.leader, m.epoch, m.inSync, m.witness = slices.Clone(m.log[best]), epoch, [modelN]bool{}, m.knows(best)
	for i, w := range m.witness {
		if m.end(i).compare(w) > 0 && slices.Contains(voters, i) {
			m.witness[i] = m.end(i)
		}
	}
	if m.rules.noBarrier {
		m.inSync[best], m.down = true, false
		return true
	}
	m.leader = append(m.leader, modelEntry{mark{epoch, uint64(len(m.leader) + 1)}, barrierEntry, m.witness})
	if !m.some90(online, m.catchUp) {
		m.inSync = [modelN]bool{} // crashed inside recovery
		return false
	}
	m.down = false
	return true
}

// some90 does f on modelW disks, or on fewer when it crashes in between.
func (m *model) some90(online []int, f func(i int)) bool {
	n := modelW
	if m.rng.IntN(100) >= 88 {
		n = m.rng.IntN(modelW)
	}
	for _, i := range m.some(online, modelW)[:n] {
		f(i)
	}
	return n == modelW
}

func (m *model) write() {
	if m.down && !m.recover() {
		return
	}
	for i := range modelN {
		if m.online[i] && !m.inSync[i] && m.count(m.inSync) < modelW {
			m.catchUp(i)
		}
	}
	need := modelW
	if m.rules.ackEarly {
		need--
	}
	if m.count(m.inSync) < need {
		return
	}
	val := noValue
	if m.rng.IntN(10) >= 3 {
		val = m.next
	}
	m.next++
	en := modelEntry{mark{m.epoch, uint64(len(m.leader) + 1)}, val, m.witness}
	targets := m.some(m.disks(func(i int) bool { return m.inSync[i] }), m.count(m.inSync))
	if m.rng.IntN(4) == 0 {
		for _, i := range targets[:m.rng.IntN(len(targets)+1)] {
			m.log[i] = append(m.log[i], en)
		}
		m.allowed[val], m.down = true, true
		m.failed++
		return
	}
	k := need + m.rng.IntN(len(targets)-need+1)
	m.inSync = [modelN]bool{}
	for _, i := range targets[:k] {
		m.log[i] = append(m.log[i], en)
		m.inSync[i], m.witness[i] = true, en.mark
	}
	m.leader = append(m.leader, en)
	m.allowed = map[int]bool{val: true}
	m.acked++
}

func (m *model) read() bool {
	if m.down && !m.recover() {
		return true
	}
	c := m.disks(func(i int) bool {
		return m.online[i] && (m.inSync[i] || m.rules.readLagging && !m.blank[i])
	})
	if len(c) == 0 {
		return true
	}
	got := noValue
	for _, en := range m.log[c[m.rng.IntN(len(c))]] {
		if en.val != barrierEntry {
			got = en.val
		}
	}
	m.reads++
	if !m.allowed[got] {
		return false
	}
	m.allowed = map[int]bool{got: true}
	return true
}

// runModel returns how many of runs violate, and the first seed that does.
func runModel(r modelRules, f modelFaults, runs int, enough int) (violating int, first uint64, total modelCounts) {
	from := max(*seedFlag, 1)
	if *runsFlag > 0 {
		runs = *runsFlag
	}
	for seed := from; seed < from+uint64(runs); seed++ {
		m := &model{rules: r, faults: f, rng: rand.New(rand.NewPCG(seed, 6))}
		if !m.run() {
			if violating++; violating == 1 {
				first = seed
			}
		}
		total.acked, total.failed, total.reads = total.acked+m.acked, total.failed+m.failed, total.reads+m.reads
		if violating >= enough {
			break
		}
	}
	return violating, first, total
}

var (
	blanks   = modelFaults{blanks: 2}
	oneLoses = modelFaults{forgets: 1}             // any suffix, of one disk at a time
	twoLose  = modelFaults{forgets: 2, deep: true} // what the peers witnessed, of two
)

func TestModelHolds(t *testing.T) {
	for name, f := range map[string]modelFaults{"blank disks": blanks, "one forgets": oneLoses, "two forget much": twoLose} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 8_000
			if testing.Short() {
				runs = 2_000
			}
			violating, seed, total := runModel(modelRules{}, f, runs, 1)
			t.Logf("%d runs, %d acknowledged, %d failed, %d reads", runs, total.acked, total.failed, total.reads)
			if violating > 0 {
				t.Errorf("violated; replay with -seed %d -runs 1", seed)
			}
		})
	}
}

// TestModelNeedsEveryRule fails when a rule can be removed unnoticed: then the
// model is too kind to tell.
func TestModelNeedsEveryRule(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, minutes with the race detector")
	}
	for name, c := range map[string]struct {
		rules  modelRules
		faults modelFaults
	}{
		"blank disks vote":                   {modelRules{blankVotes: true}, blanks},
		"no epochs":                          {modelRules{noEpoch: true}, blanks},
		"epoch not promised":                 {modelRules{noPromise: true}, blanks},
		"acknowledged by a disk too few":     {modelRules{ackEarly: true}, blanks},
		"divergent suffix not repaired":      {modelRules{noRepair: true}, blanks},
		"no barrier":                         {modelRules{noBarrier: true}, blanks},
		"reads from lagging disks":           {modelRules{readLagging: true}, blanks},
		"no witness":                         {modelRules{noWitness: true}, twoLose},
		"recovery does not wait for all":     {modelRules{fewVoters: true}, oneLoses},
		"blank disks vote, one forgets":      {modelRules{blankVotes: true}, modelFaults{blanks: 2, forgets: 1}},
		"two forget little (out of budget)":  {modelRules{}, modelFaults{forgets: 2}},
		"one forgets, two blank (no budget)": {modelRules{}, modelFaults{blanks: 2, forgets: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			violating, seed, _ := runModel(c.rules, c.faults, 300_000, 1)
			if violating == 0 {
				t.Error("not noticed")
			}
			t.Logf("found at seed %d", seed)
		})
	}
}
