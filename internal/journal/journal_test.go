package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/forwarder"
)

func record(n byte, half cats.Half) forwarder.Record {
	client := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.10"), uint16(50000)+uint16(n))
	match := cats.Tuple{Protocol: cats.TCP, Source: client, Target: netip.MustParseAddrPort("192.0.2.100:443")}
	locator := netip.MustParseAddrPort("198.51.100.21:443")
	sid := netip.MustParseAddr("2001:db8:0:e2::21")
	return forwarder.Record{Half: half, Binding: cats.Binding{
		Transaction: cats.Transaction{1, 15: n}, Shard: 3, Epoch: cats.Epoch{Term: 4, Counter: 5}, Version: 6,
		Match: cats.FlowKey{Attachment: "client-1", Tenant: "default", Tuple: match},
		CSID:  "S1", ServiceNumber: 1, CSCIID: "198.51.100.21:443", Locator: cats.Locator{Protocol: cats.TCP, Address: locator},
		Attachment: sid, Ingress: "IF-1", Egress: "EF-2",
		Path: cats.Path{Kind: cats.PathSRv6, Segments: []netip.Addr{netip.MustParseAddr("2001:db8:0:f1::1"), sid}, Nodes: []string{"IF-1", "R1", "EF-2"}, Generation: 7, DelayUS: 1000},
		Reverse: cats.Reverse{
			Service: cats.Tuple{Protocol: cats.TCP, Source: locator, Target: client}, Client: match.Reverse(), Restore: match.Target,
			Path: cats.Path{Kind: cats.PathSRv6, Segments: []netip.Addr{netip.MustParseAddr("2001:db8:0:1::100")}, Nodes: []string{"EF-2", "R1", "IF-1"}, Generation: 7, DelayUS: 1000},
		},
		Idle: 2 * time.Hour, Hard: time.Hour, Slots: 1, CSTGeneration: 8, NSTGeneration: 9, PolicyVersion: "1", Decided: 1_700_000_000_000_000_000,
	}}
}

func provision() *cats.Provision {
	return &cats.Provision{
		Generation: 11, Shard: 3, Epoch: cats.Epoch{Term: 4, Counter: 5},
		Services:   []cats.ServiceRule{{Number: 1, CSID: "S1", Prefix: netip.MustParsePrefix("192.0.2.100/32"), Protocol: cats.TCP, Port: 443}},
		Deliveries: []cats.Delivery{{CSCIID: "a", Locator: cats.Locator{Protocol: cats.TCP, Address: netip.MustParseAddrPort("198.51.100.21:443")}, SID: netip.MustParseAddr("2001:db8:0:e2::21")}},
	}
}

func put(r forwarder.Record) forwarder.JournalEntry {
	return forwarder.JournalEntry{Kind: forwarder.JournalPut, Record: r}
}

func open(t *testing.T, directory, boot string) (*Journal, Contents, Report) {
	t.Helper()
	j, restored, report, err := Open(directory, boot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, restored, report
}

func add(t *testing.T, j *Journal, entries ...forwarder.JournalEntry) {
	t.Helper()
	if err := j.Append(entries, false); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, want, got Contents) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}), cmpopts.EquateEmpty()); d != "" {
		t.Fatal(d)
	}
}

var epochs = map[cats.Shard]cats.Epoch{0: {Term: 1, Counter: 2}, 3: {Term: 4, Counter: 5}}

// fill writes a journal that amounts to what it gives.
func fill(t *testing.T, j *Journal) Contents {
	draining := record(1, cats.IngressHalf)
	draining.Draining, draining.Reason = true, cats.ReasonFinished
	add(t, j,
		forwarder.JournalEntry{Kind: forwarder.JournalEpoch, Shard: 0, Epoch: cats.Epoch{Term: 1, Counter: 2}},
		forwarder.JournalEntry{Kind: forwarder.JournalEpoch, Shard: 3, Epoch: cats.Epoch{Term: 4, Counter: 5}},
		forwarder.JournalEntry{Kind: forwarder.JournalProvision, Provision: provision()},
		put(record(1, cats.IngressHalf)), put(record(2, cats.EgressHalf)), put(record(3, cats.EgressHalf)), put(record(1, cats.EgressHalf)),
		put(draining),
		forwarder.JournalEntry{Kind: forwarder.JournalRemove, Record: record(3, cats.EgressHalf)},
	)
	totals := Totals{Requests: 7, Released: 5, Drops: map[cats.Reason]uint64{cats.ReasonNoCandidate: 3}}
	if err := j.AppendTotals(totals); err != nil {
		t.Fatal(err)
	}
	return Contents{Totals: totals, Restored: forwarder.Restored{
		Epochs: epochs, Provisions: []*cats.Provision{provision()},
		Records: []forwarder.Record{draining, record(1, cats.EgressHalf), record(2, cats.EgressHalf)},
	}}
}

func TestJournal(t *testing.T) {
	t.Run("CP-10-4 what was written is there after a crash", func(t *testing.T) {
		directory := t.TempDir()
		j, restored, report := open(t, directory, "boot-1")
		check(t, Contents{}, restored)
		if report != (Report{}) {
			t.Fatalf("report %+v", report)
		}
		want := fill(t, j)
		j.lock.Close() // the process ends without Close
		j, restored, report = open(t, directory, "boot-1")
		check(t, want, restored)
		if report != (Report{}) {
			t.Fatalf("report %+v", report)
		}
		j.Close()
		_, restored, _ = open(t, directory, "boot-1") // from the compacted file
		check(t, want, restored)
	})
	t.Run("each shard has a provision of its own, or none any more", func(t *testing.T) {
		directory := t.TempDir()
		j, _, _ := open(t, directory, "boot-1")
		first, other := provision(), provision()
		other.Shard, other.Generation = 9, 1
		set := func(p *cats.Provision) forwarder.JournalEntry {
			return forwarder.JournalEntry{Kind: forwarder.JournalProvision, Shard: p.Shard, Provision: p}
		}
		add(t, j, set(other), set(first))
		j.Close()
		j, restored, _ := open(t, directory, "boot-1")
		check(t, Contents{Restored: forwarder.Restored{Provisions: []*cats.Provision{first, other}}}, restored)
		add(t, j, forwarder.JournalEntry{Kind: forwarder.JournalProvision, Shard: first.Shard})
		j.Close()
		_, restored, report := open(t, directory, "boot-1")
		check(t, Contents{Restored: forwarder.Restored{Provisions: []*cats.Provision{other}}}, restored)
		if report != (Report{}) {
			t.Fatalf("report %+v", report)
		}
	})
	t.Run("CP-10-4 another boot keeps the epochs and nothing else", func(t *testing.T) {
		directory := t.TempDir()
		j, _, _ := open(t, directory, "boot-1")
		fill(t, j)
		j.Close()
		j, restored, report := open(t, directory, "boot-2")
		check(t, Contents{Restored: forwarder.Restored{Epochs: epochs}}, restored)
		if !report.OtherBoot || report.Discarded != 3 {
			t.Fatalf("report %+v", report)
		}
		j.Close()
		_, restored, _ = open(t, directory, "boot-1")
		check(t, Contents{Restored: forwarder.Restored{Epochs: epochs}}, restored)
	})
	t.Run("a torn tail is left out and reported, wherever it is torn", func(t *testing.T) {
		directory := t.TempDir()
		j, _, _ := open(t, directory, "boot-1")
		want := fill(t, j)
		whole := j.Size()
		add(t, j, put(record(9, cats.IngressHalf)))
		j.Close()
		content, err := os.ReadFile(filepath.Join(directory, fileName))
		if err != nil {
			t.Fatal(err)
		}
		for cut := whole + 1; cut < int64(len(content)); cut += 7 {
			directory := t.TempDir()
			if err := os.WriteFile(filepath.Join(directory, fileName), content[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			j, restored, report := open(t, directory, "boot-1")
			check(t, want, restored)
			if report.Torn != int(cut-whole) || report.Why == "" {
				t.Fatalf("cut at %d of %d: report %+v", cut, len(content), report)
			}
			j.Close()
		}
	})
	t.Run("an epoch never falls, whatever the file says last", func(t *testing.T) {
		directory := t.TempDir()
		j, _, _ := open(t, directory, "boot-1")
		add(t, j,
			forwarder.JournalEntry{Kind: forwarder.JournalEpoch, Epoch: cats.Epoch{Term: 9}},
			forwarder.JournalEntry{Kind: forwarder.JournalEpoch, Epoch: cats.Epoch{Term: 8}})
		j.Close()
		_, restored, _ := open(t, directory, "boot-1")
		if e := restored.Epochs[0]; e.Term != 9 {
			t.Fatalf("epoch %s", e)
		}
	})
	t.Run("it is due for compaction when it has grown, and shrinks then", func(t *testing.T) {
		directory := t.TempDir()
		j, _, _ := open(t, directory, "boot-1")
		r := record(1, cats.IngressHalf)
		for n := 0; !j.Grown(); n++ {
			if n > 100_000 {
				t.Fatal("never due")
			}
			add(t, j, put(r), forwarder.JournalEntry{Kind: forwarder.JournalRemove, Record: r})
		}
		want := Contents{Restored: forwarder.Restored{Epochs: epochs, Records: []forwarder.Record{r}}}
		if err := j.Compact(want); err != nil {
			t.Fatal(err)
		}
		if j.Grown() || j.Size() > 1024 {
			t.Fatalf("%d octets after compaction", j.Size())
		}
		add(t, j, put(record(2, cats.IngressHalf)))
		want.Records = append(want.Records, record(2, cats.IngressHalf))
		j.Close()
		_, restored, _ := open(t, directory, "boot-1")
		check(t, want, restored)
	})
	t.Run("two forwarders cannot share it", func(t *testing.T) {
		directory := t.TempDir()
		open(t, directory, "boot-1")
		_, _, _, err := Open(directory, "boot-1")
		if err == nil || !strings.Contains(err.Error(), "another forwarder") || !strings.Contains(err.Error(), directory) {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("nobody else may read it", func(t *testing.T) {
		directory := filepath.Join(t.TempDir(), "state")
		open(t, directory, "boot-1")
		for path, want := range map[string]os.FileMode{directory: 0o700 | os.ModeDir, filepath.Join(directory, fileName): 0o600} {
			info, err := os.Stat(path)
			if err != nil || info.Mode() != want {
				t.Fatalf("%s: mode %v, error %v", path, info.Mode(), err)
			}
		}
	})
	t.Run("what a crash in compaction left is cleared", func(t *testing.T) {
		directory := t.TempDir()
		left, kept := filepath.Join(directory, fileName+".new-123"), filepath.Join(directory, fileName+".damaged")
		for _, path := range []string{left, kept} {
			if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		open(t, directory, "boot-1")
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Fatalf("it is still there: %v", err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("what somebody kept is gone: %v", err)
		}
	})
}

// TestDamage has files that no crash leaves, and some that one does.
func TestDamage(t *testing.T) {
	directory := t.TempDir()
	j, _, _ := open(t, directory, "boot-1")
	want := fill(t, j)
	at := int(j.Size()) // of the entries that follow what fill wrote
	add(t, j, put(record(9, cats.IngressHalf)))
	second := int(j.Size())
	add(t, j, put(record(10, cats.IngressHalf)))
	third := int(j.Size())
	add(t, j, forwarder.JournalEntry{Kind: forwarder.JournalEpoch, Shard: 3, Epoch: cats.Epoch{Term: 6}})
	j.Close()
	whole, err := os.ReadFile(filepath.Join(directory, fileName))
	if err != nil {
		t.Fatal(err)
	}
	strange, err := appendFrame(bytes.Clone(whole), func(b []byte) ([]byte, error) { return append(b, 99, 1, 2, 3), nil })
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(content []byte, i int) []byte {
		content = bytes.Clone(content)
		content[i] ^= 0x40
		return content
	}
	epochsOnly := Contents{Restored: forwarder.Restored{Epochs: epochs}}
	for name, c := range map[string]struct {
		content []byte
		boot    string
		offset  int // where it is refused; 0: it is taken
		taken   Contents
	}{
		"in the body of an entry":               {flipped(whole, at+headerSize+20), "boot-1", at, Contents{}},
		"in a checksum":                         {flipped(whole, at+5), "boot-1", at, Contents{}},
		"in a length, which becomes too large":  {flipped(whole, at), "boot-1", at, Contents{}},
		"in a length, which becomes a bit more": {flipped(whole, at+3), "boot-1", at, Contents{}},
		"octets in between":                     {append(append(bytes.Clone(whole[:at]), make([]byte, 4096)...), whole[at:]...), "boot-1", at, Contents{}},
		"in the first entry":                    {flipped(whole, headerSize+2), "boot-1", -1, Contents{}},
		"the first entry alone":                 {flipped(whole, headerSize+2)[:headerSize+7], "boot-1", -1, Contents{}},
		"an entry that nobody knows":            {strange, "boot-1", len(whole), Contents{}},
		"before an epoch of another boot":       {flipped(whole, at+headerSize+20), "boot-2", at, Contents{}},
		"in the last entry":                     {flipped(whole[:second], at+headerSize+20), "boot-1", 0, want},
		"zeros at the end":                      {append(bytes.Clone(whole[:at]), make([]byte, 8192)...), "boot-1", 0, want},
		"anything at the end":                   {append(bytes.Clone(whole[:at]), bytes.Repeat([]byte{0, 0, 0, 9, 1, 2, 3, 4, 4}, 1000)...), "boot-1", 0, want},
		"in records that ended with their boot": {flipped(whole[:third], at+headerSize+20), "boot-2", 0, epochsOnly},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			path := filepath.Join(directory, fileName)
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if c.offset == 0 {
				_, restored, report := open(t, directory, c.boot)
				check(t, c.taken, restored)
				if report.Torn != len(c.content)-at || report.Why == "" {
					t.Errorf("report %+v", report)
				}
				return
			}
			_, _, _, err := Open(directory, c.boot)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s is damaged at octet %d of %d", path, max(c.offset, 0), len(c.content))) ||
				!strings.Contains(err.Error(), "Move the file away") {
				t.Fatalf("error %v", err)
			}
			if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, c.content) {
				t.Error("the damaged file was touched")
			}
			// The way out.
			if err := os.Rename(path, path+".damaged"); err != nil {
				t.Fatal(err)
			}
			_, restored, _ := open(t, directory, c.boot)
			check(t, Contents{}, restored)
			if _, err := os.Stat(path + ".damaged"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAnyHistory compares the journal with a core's own snapshot after random histories.
func TestAnyHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newState()
	content, err := appendBoot(nil, "b")
	if err != nil {
		t.Fatal(err)
	}
	model := map[string]forwarder.Record{}
	for range 2000 {
		r := record(byte(random.IntN(20)), cats.Half(random.IntN(2)))
		e := put(r)
		name := fmt.Sprint(r.Binding.Transaction, r.Half)
		if random.IntN(3) == 0 {
			e.Kind = forwarder.JournalRemove
			delete(model, name)
		} else {
			e.Record.Binding.Version = uint32(1 + random.IntN(100))
			model[name] = e.Record
		}
		if content, err = appendEntry(content, &e); err != nil {
			t.Fatal(err)
		}
	}
	if taken, err := s.replay(content); err != nil || taken != len(content) {
		t.Fatalf("%d of %d octets: %v", taken, len(content), err)
	}
	got := s.contents("b")
	if len(got.Records) != len(model) {
		t.Fatalf("%d records, want %d", len(got.Records), len(model))
	}
	for _, r := range got.Records {
		if w := model[fmt.Sprint(r.Binding.Transaction, r.Half)]; w.Binding.Version != r.Binding.Version {
			t.Fatalf("%s %s: version %d, want %d", r.Binding.Transaction, r.Half, r.Binding.Version, w.Binding.Version)
		}
	}
}

func FuzzReplay(f *testing.F) {
	whole, err := image("boot-1", Contents{
		Totals: Totals{Requests: 1, Drops: map[cats.Reason]uint64{cats.ReasonTimeout: 2}},
		Restored: forwarder.Restored{
			Epochs: epochs, Provisions: []*cats.Provision{provision()},
			Records: []forwarder.Record{record(1, cats.IngressHalf), record(2, cats.EgressHalf)},
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	removed, err := appendRemove(bytes.Clone(whole), cats.EgressHalf, cats.Transaction{1, 15: 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(removed)
	f.Add(whole[:len(whole)-3])
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newState()
		taken, err := s.replay(b)
		if taken > len(b) || (taken < len(b)) != (err != nil) {
			t.Fatalf("took %d of %d octets: %v", taken, len(b), err)
		}
		_ = s.tail(b[taken:], err, "boot-1") // must not panic
		fuzzBody(b)
		// What was understood can be written and read again, and is the same.
		want := s.contents(s.boot)
		again, err := image(s.boot, want)
		if err != nil {
			t.Fatal(err)
		}
		second := newState()
		if n, err := second.replay(again); err != nil || n != len(again) {
			t.Fatalf("own file, %d of %d octets: %v", n, len(again), err)
		}
		check(t, want, second.contents(s.boot))
	})
}

// fuzzBody takes b as a body as well, past the checksum that a fuzzer does not guess.
func fuzzBody(b []byte) {
	if len(b) > 0 {
		s := newState()
		s.booted = true
		_ = s.apply(b) // must not panic, whatever it says
	}
}

func BenchmarkAppend(b *testing.B) {
	j, _, _, err := Open(b.TempDir(), "boot-1")
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	var entries []forwarder.JournalEntry
	for n := range 256 {
		entries = append(entries, put(record(byte(n), cats.IngressHalf)))
	}
	for b.Loop() {
		if err := j.Append(entries, false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(entries)), "ns/record")
}
