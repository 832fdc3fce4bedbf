package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-net/margay/cats"
)

// newTable gives a table with a clock that the test moves, in the memory of this process alone.
func newTable(bindings uint32) (*table, *int64) {
	now := Monotonic()
	return &table{
		lines: make([]programBinding, placeCount(bindings)), records: make([]programRecord, recordCount(bindings)),
		secret: ref(drawSecrets()), homes: homeCount(bindings), capacity: int(entryCapacity(bindings)),
		now: func() int64 { return now }, occupied: make([]uint64, touchedWords(bindings)),
		touched: make([]uint64, touchedWords(bindings)),
	}, &now
}

func ref[V any](v V) *V { return &v }

// numbered gives an entry of a kind of its own for each n, in IPv6 where n is odd.
func numbered(n uint32) Entry {
	client, service, instance := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), addr("192.0.2.100"), addr("198.51.100.21")
	if n%2 == 1 {
		a := addr("2001:db8:c::").As16()
		binary.BigEndian.PutUint32(a[12:], n)
		client, service, instance = netip.AddrFrom16(a), addr("2001:db8:5::100"), addr("2001:db8:b::21")
	}
	e := Entry{
		Key: Key{Kind: Kind(n / 2 % 4), Tuple: cats.Tuple{
			Protocol: cats.UDP, Source: netip.AddrPortFrom(client, uint16(n)), Target: netip.AddrPortFrom(service, 53),
		}},
		Version: n, Service: 7, Shard: 2, Epoch: cats.Epoch{Term: 1, Counter: uint64(n)},
	}
	binary.BigEndian.PutUint32(e.Transaction[:], n)
	switch e.Key.Kind {
	case IngressForward:
		e.Key.Attachment, e.Rewrite, e.Path = 9, netip.AddrPortFrom(instance, 5353), n%60+1
	case IngressReverse:
		e.Rewrite, e.NextHop = netip.AddrPortFrom(instance, 5353), n%60+1
	case EgressReverse:
		e.Path = n%60 + 1
	}
	return e
}

func (t *table) put(e Entry) error { _, err := t.install(&e); return err }

func (t *table) take(k Key) bool {
	key, err := encodeKey(k)
	if err != nil {
		panic(err)
	}
	l, place := t.lookUp(&key)
	if l != nil {
		t.remove(l, place)
	}
	return l != nil
}

// get looks a key up as the program does: from its home until a place that ends the search.
func (t *table) get(k Key) (Entry, bool) {
	key, err := encodeKey(k)
	if err != nil {
		panic(err)
	}
	l, _ := t.lookUp(&key)
	if l == nil {
		return Entry{}, false
	}
	return decodeEntry(&key, l, &t.records[l.Record]), true
}

// consistent compares everything that the table says of itself with the entries that must be in it.
func (t *table) consistent(want map[Key]Entry) error {
	if t.count != len(want) {
		return fmt.Errorf("%d entries, want %d", t.count, len(want))
	}
	var digests Digests
	for k, e := range want {
		if have, ok := t.get(k); !ok || have != e {
			return fmt.Errorf("%s: %+v, %t, want %+v", k.Tuple, have, ok, e)
		}
		bucket, digest := DigestOf(t.digestKey, e.Transaction, e.Version, k.Kind)
		digests[bucket] ^= digest
	}
	if digests != t.digests {
		return errors.New("digests are not those of the entries")
	}
	live, records := 0, make(map[uint32]bool)
	for place, l := range t.lines {
		if l.Tag < tagLive {
			if t.occupied[place/64]>>(place%64)&1 != 0 {
				return fmt.Errorf("place %d is marked and empty", place)
			}
			continue
		}
		live++
		if records[l.Record] {
			return fmt.Errorf("record %d has two entries", l.Record)
		}
		records[l.Record] = true
		if t.occupied[place/64]>>(place%64)&1 == 0 {
			return fmt.Errorf("place %d is not marked", place)
		}
	}
	for _, r := range t.returned {
		if records[r] || r >= t.fresh {
			return fmt.Errorf("record %d is in use and free", r)
		}
		records[r] = true
	}
	for _, q := range t.quarantine[t.released:] {
		if q.record != noRecord {
			records[q.record] = true
		}
	}
	if live != len(want) || len(records) != int(t.fresh) {
		return fmt.Errorf("%d places and %d of %d records, want %d", live, len(records), t.fresh, len(want))
	}
	return nil
}

// TestTableProperty does random things to a table and to a map, and compares them.
func TestTableProperty(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		table, now := newTable(64)
		want := make(map[Key]Entry)
		for step := range 6000 {
			*now += random.Int64N(quarantineTime / 20)
			e := numbered(random.Uint32N(160))
			old, there := want[e.Key]
			switch random.IntN(5) {
			case 0, 1:
				err := table.put(e)
				if there != (err == nil) && len(want) < table.capacity && err != nil {
					t.Fatalf("seed %d, step %d: %v with %d entries", seed, step, err, len(want))
				}
				if err == nil {
					want[e.Key] = e
				} else if !errors.Is(err, cats.ReasonTableFull) || len(want) < table.capacity {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			case 2:
				if took := table.take(e.Key); took != there {
					t.Fatalf("seed %d, step %d: removed %t, want %t", seed, step, took, there)
				}
				delete(want, e.Key)
			case 3:
				old.Version++
				if there {
					if err := table.put(old); err != nil {
						t.Fatalf("seed %d, step %d: amending: %v", seed, step, err)
					}
					want[e.Key] = old
				}
			case 4:
				if have, ok := table.get(e.Key); ok != there || have != old {
					t.Fatalf("seed %d, step %d: found %+v, want %+v", seed, step, have, old)
				}
			}
			if step%100 == 0 {
				if err := table.consistent(want); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
		}
		for k := range want {
			table.take(k)
		}
		*now += 2 * quarantineTime
		table.release()
		if err := table.consistent(nil); err != nil {
			t.Fatalf("seed %d, emptied: %v", seed, err)
		}
		for place, l := range table.lines {
			if l.Tag != tagNever {
				t.Fatalf("seed %d: place %d of an empty table still lengthens searches", seed, place)
			}
		}
	}
}

// TestTableQuarantine proves that nothing is written to a place that an entry was in until the time is over, and that
// what is behind it is found all the while.
func TestTableQuarantine(t *testing.T) {
	table, now := newTable(64)
	entries := sameHome(table, 3)
	for _, e := range entries {
		must(t, table.put(e))
	}
	key, err := encodeKey(entries[1].Key)
	must(t, err)
	l, place := table.lookUp(&key)
	table.take(entries[1].Key)
	left := *l
	*now += quarantineTime - 1
	must(t, table.put(entries[1]))
	if *l != left || l.Tag != tagQuarantined {
		t.Errorf("place %d was written to within its quarantine: %+v", place, *l)
	}
	for _, e := range entries {
		if have, ok := table.get(e.Key); !ok || have != e {
			t.Errorf("%+v, %t, want %+v", have, ok, e)
		}
	}
	table.take(entries[1].Key)
	*now += 2
	must(t, table.put(entries[1]))
	if _, again := table.lookUp(&key); again != place {
		t.Errorf("after its quarantine place %d stays empty; the entry is at %d", place, again)
	}
}

// sameHome gives n entries that all want the same place.
func sameHome(table *table, n int) []Entry {
	byHome := make(map[uint32][]Entry)
	for i := uint32(0); ; i++ {
		e := numbered(i)
		key, err := encodeKey(e.Key)
		if err != nil {
			panic(err)
		}
		home := prepareQuery(table.secret, table.homes, &key).home
		byHome[home] = append(byHome[home], e)
		if len(byHome[home]) == n {
			return byHome[home]
		}
	}
}

// TestTableCollisions fills all the places that one hash may have, and proves that the next is refused and changes
// nothing.
func TestTableCollisions(t *testing.T) {
	table, now := newTable(128)
	entries := sameHome(table, probes+1)
	want := make(map[Key]Entry)
	for _, e := range entries[:probes] {
		must(t, table.put(e))
		want[e.Key] = e
	}
	must(t, table.consistent(want))
	err := table.put(entries[probes])
	if !errors.Is(err, cats.ReasonTableFull) || !strings.Contains(err.Error(), fmt.Sprint(probes)) {
		t.Errorf("error %v, want table-full that names the places", err)
	}
	must(t, table.consistent(want))
	table.take(entries[5].Key)
	if err := table.put(entries[probes]); !errors.Is(err, cats.ReasonTableFull) {
		t.Errorf("error %v, want table-full: the one place is in quarantine", err)
	}
	*now += quarantineTime
	must(t, table.put(entries[probes]))
	delete(want, entries[5].Key)
	want[entries[probes].Key] = entries[probes]
	must(t, table.consistent(want))
}

// TestTableLookAlike proves that a key of IPv6 whose entry the program could not tell from another's is refused.
func TestTableLookAlike(t *testing.T) {
	table, _ := newTable(64)
	for _, i := range []int{6, 9} { // without factors, what they are for is all the same
		table.secret[i] = 0
	}
	e := numbered(1)
	must(t, table.put(e))
	other := e
	other.Key.Tuple.Source = ap("[2002:db8:c::1]:1")
	if err := table.put(other); !errors.Is(err, cats.ReasonTableFull) {
		t.Errorf("error %v, want table-full", err)
	}
	if table.take(other.Key) {
		t.Error("removing the other key removed the entry")
	}
	must(t, table.consistent(map[Key]Entry{e.Key: e}))
}

// TestTableFourMillion fills a table of the size that the largest deployments ask for.
func TestTableFourMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("1 GiB and some seconds; run it without -short")
	}
	n := newDomain(t)
	must(t, n.Close(), Unload(n.pins))
	config := n.config()
	config.Bindings = 2_000_000
	n.open(t, config)
	started := time.Now()
	for i := range uint32(4_000_000) {
		if err := n.Install([]Entry{numbered(i)}); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	took := time.Since(started)
	if err := n.Install([]Entry{numbered(4_000_000)}); !errors.Is(err, cats.ReasonTableFull) {
		t.Errorf("one more: error %v, want table-full", err)
	}
	farthest := uint32(0)
	for i := range uint32(4_000_000) {
		key, err := encodeKey(numbered(i).Key)
		must(t, err)
		l, place := n.table.lookUp(&key)
		if l == nil {
			t.Fatalf("entry %d is not found", i)
		}
		farthest = max(farthest, place-prepareQuery(n.table.secret, n.table.homes, &key).home)
	}
	count := 0
	must(t, n.Used(func(Usage) { count++ }))
	scan := time.Now()
	must(t, n.Used(func(Usage) { t.Error("an idle entry is told") }))
	t.Logf("%v an entry; farthest from its home %d of %d places; a scan of idle entries %v", took/4_000_000, farthest, probes,
		time.Since(scan))
	reopen := time.Now()
	digests := n.Digests()
	must(t, n.Close())
	n.open(t, config)
	if n.table.count != 4_000_000 || n.Digests() != digests {
		t.Errorf("after a restart: %d entries, same digests %t", n.table.count, n.Digests() == digests)
	}
	t.Logf("reopened in %v", time.Since(reopen))
}

// TestTableUnderTraffic changes the table while the program looks in it: a packet whose binding stays always gets what it
// must, one whose binding comes and goes gets that or is held.
func TestTableUnderTraffic(t *testing.T) {
	n := newDomain(t)
	n.table.now = func() int64 { return 1000 * Monotonic() } // a quarantine of a millisecond: places are reused all the time
	clients := func(i int) []Entry {
		f := flows[i%len(flows)]
		f.client = netip.AddrPortFrom(f.client.Addr(), uint16(2000+i))
		f.locator = netip.AddrPortFrom(f.locator.Addr(), uint16(3000+i))
		return f.ingress("client-1", pathForward, hopClient)[:1]
	}
	const staying, moving = 60, 120
	var frames [staying + moving][]byte
	for i := range frames {
		e := clients(i)[0]
		frames[i] = ethernet(n.mac["client0"], clientMAC, packet{tuple: e.Key.Tuple, ttl: 9, flags: "A"}.octets(t))
		if i < staying {
			must(t, n.Install([]Entry{e}))
		}
	}
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Add(1)
	go func() {
		defer reader.Done()
		for i := 0; ; i = (i + 7) % len(frames) {
			select {
			case <-stop:
				return
			default:
			}
			action, out := n.run(t, "client0", frames[i])
			if action == xdpRedirect {
				// The packet ends in its ports; the target port tells whose binding was used.
				header := 14 + 40 + 20
				if frames[i][12] == 0x86 {
					header += 20
				}
				if port := binary.BigEndian.Uint16(out[header+2:]); port != uint16(3000+i) {
					t.Errorf("flow %d went to port %d", i, port)
				}
			} else if i < staying || action != xdpDrop {
				t.Errorf("flow %d: %s", i, actionName(action))
			}
			if n.ring.AvailableBytes() > 1<<19 {
				n.ReadMisses(make([]Miss, 0, 4096), time.Now())
			}
		}
	}()
	random := rand.New(rand.NewPCG(1, 2))
	there := make(map[int]bool)
	changes := 0
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); changes++ {
		i := staying + random.IntN(moving)
		if there[i] {
			must(t, n.Remove([]Key{clients(i)[0].Key}))
		} else if err := n.Install(clients(i)); err != nil && !errors.Is(err, cats.ReasonTableFull) {
			t.Fatal(err)
		} else if err != nil {
			continue
		}
		there[i] = !there[i]
	}
	close(stop)
	reader.Wait()
	var used uint64
	must(t, n.Usage(func(u Usage) { used += u.Packets }))
	t.Logf("%d changes; %d packets counted in what stayed", changes, used)
	if changes < 1000 || used < 100 {
		t.Error("too little happened")
	}
}

// TestTableRestart proves that a new process finds entries, counters and digests, takes no place in quarantine, and
// reuses what is free.
func TestTableRestart(t *testing.T) {
	n := newDomain(t)
	f, g := tcp4, udp6
	must(t, n.Install(append(f.ingress("client-1", pathForward, hopClient), g.egress(pathReturn)...)))
	frame := ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 9, flags: "FA"}.octets(t))
	for range 3 {
		n.expectAction(t, "client0", frame, xdpRedirect)
	}
	gone := g.egress(pathReturn)[1].Key
	must(t, n.Remove([]Key{gone}))
	before, digests := n.usage(t), n.Digests()
	if before[f.ingressKey("client-1")].Packets != 3 {
		t.Fatalf("usage %+v", before)
	}
	must(t, n.Close())
	if _, err := n.Entries(); !errors.Is(err, ErrClosed) {
		t.Errorf("entries after Close: %v, want ErrClosed", err)
	}
	if err := errors.Join(n.Usage(func(Usage) {}), n.Install(nil), n.Remove(nil)); !errors.Is(err, ErrClosed) {
		t.Errorf("use after Close: %v, want ErrClosed", err)
	}
	n.open(t, n.config())
	if after := n.usage(t); len(after) != len(before) || after[f.ingressKey("client-1")] != before[f.ingressKey("client-1")] {
		t.Errorf("usage went from %+v to %+v", before, after)
	}
	if n.Digests() != digests {
		t.Error("the digests changed")
	}
	if q := n.table.quarantine; len(q) != 1 {
		t.Errorf("%d places in quarantine, want the one that was", len(q))
	}
	n.expectAction(t, "client0", frame, xdpRedirect)
	if u := n.usage(t)[f.ingressKey("client-1")]; u.Packets != 4 {
		t.Errorf("%d packets, want 4", u.Packets)
	}
	must(t, n.Install(g.egress(pathReturn)))
}

func (n *node) expectAction(t testing.TB, port string, frame []byte, want uint32) {
	t.Helper()
	if a, _ := n.run(t, port, frame); a != want {
		t.Errorf("the program says %s, want %s", actionName(a), actionName(want))
	}
}

// TestUsed proves that what was installed or used since the last time is told, and nothing else.
func TestUsed(t *testing.T) {
	n := newDomain(t)
	var entries []Entry
	for _, f := range flows {
		entries = append(entries, f.ingress("client-1", pathForward, hopClient)...)
	}
	must(t, n.Install(entries))
	used := func(want ...Key) {
		t.Helper()
		got := make(map[Key]bool)
		must(t, n.Used(func(u Usage) {
			got[u.Key] = true
			if u != n.usage(t)[u.Key] {
				t.Errorf("%+v, want %+v", u, n.usage(t)[u.Key])
			}
		}))
		if len(got) != len(want) {
			t.Errorf("%d entries %v, want %d", len(got), got, len(want))
		}
		for _, k := range want {
			if !got[k] {
				t.Errorf("%s is missing", k.Tuple)
			}
		}
	}
	var all []Key
	for _, e := range entries {
		all = append(all, e.Key)
	}
	used(all...)
	used()
	send := func(f flow) {
		n.expectAction(t, "client0", ethernet(n.mac["client0"], clientMAC, packet{tuple: f.forward(), ttl: 9}.octets(t)), xdpRedirect)
	}
	send(tcp4)
	send(tcp4)
	send(udp6)
	used(tcp4.ingressKey("client-1"), udp6.ingressKey("client-1"))
	must(t, n.SetDraining(tcp4.ingressKey("client-1"), transaction, true))
	send(tcp4)
	used(tcp4.ingressKey("client-1"))
	send(udp6)
	must(t, n.Remove([]Key{udp6.ingressKey("client-1")}))
	used()
}

// TestDigests proves that entries that are the same, put in any order, have the same digests, and that any difference
// shows in its bucket alone.
func TestDigests(t *testing.T) {
	a, _ := newTable(64)
	b, now := newTable(64)
	for i := range uint32(100) {
		must(t, a.put(numbered(i)), b.put(numbered(99-i)))
	}
	if a.digests != b.digests {
		t.Error("the digests differ")
	}
	old := numbered(42)
	newer := old
	newer.Version++
	must(t, b.put(newer))
	bucket, _ := DigestOf(b.digestKey, old.Transaction, old.Version, old.Key.Kind)
	for i := range a.digests {
		if differs := a.digests[i] != b.digests[i]; differs != (i == bucket) {
			t.Errorf("bucket %d: differs %t", i, differs)
		}
	}
	must(t, b.put(old))
	b.take(numbered(1).Key)
	*now += quarantineTime
	must(t, b.put(numbered(1)))
	if a.digests != b.digests {
		t.Error("the digests differ again")
	}
}

// TestSipHash compares with the vectors of the reference implementation: messages 00 01 02 … under key 00 01 … 0f.
func TestSipHash(t *testing.T) {
	var key [16]byte
	for i := range key {
		key[i] = byte(i)
	}
	if h := sipHash(key); h != 0x726fdb47dd0e0e31 {
		t.Errorf("of nothing: %#x", h)
	}
	if h := sipHash(key, 0x0706050403020100); h != 0x93f5f5799a932462 {
		t.Errorf("of 8 octets: %#x", h)
	}
}

// scanTable gives a table of a million entries.
func scanTable(b *testing.B) *Datapath {
	table, _ := newTable(500_000)
	for i := range uint32(1_000_000) {
		if err := table.put(numbered(i)); err != nil {
			b.Fatal(err)
		}
	}
	return &Datapath{table: table}
}

// BenchmarkUsedIdle scans a million entries that nothing came for. A scan a second takes as many ms of each 1,000 as one
// run here.
func BenchmarkUsedIdle(b *testing.B) {
	d := scanTable(b)
	clear(d.table.touched)
	spent := cpuTime(b)
	for b.Loop() {
		if err := d.Used(func(Usage) { b.Fatal("nothing was used") }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-spent)/1e6/float64(b.N), "cpu-ms/op")
}

// BenchmarkUsedTenth is the same where something came for one in ten.
func BenchmarkUsedTenth(b *testing.B) {
	d := scanTable(b)
	touched := make([]uint64, len(d.table.touched))
	for place, l := range d.table.lines {
		if l.Tag >= tagLive && place%10 == 0 {
			touched[place/64] |= 1 << (place % 64)
		}
	}
	spent := cpuTime(b)
	for b.Loop() {
		copy(d.table.touched, touched)
		n := 0
		if err := d.Used(func(Usage) { n++ }); err != nil || n < 90_000 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-spent)/1e6/float64(b.N), "cpu-ms/op")
}

// cpuTime gives the time that this process ran, which other processes do not add to.
func cpuTime(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkUsage scans a million entries and reads each.
func BenchmarkUsage(b *testing.B) {
	d := scanTable(b)
	spent := cpuTime(b)
	for b.Loop() {
		n := 0
		if err := d.Usage(func(Usage) { n++ }); err != nil || n != 1_000_000 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-spent)/1e6/float64(b.N), "cpu-ms/op")
}

func BenchmarkInstall(b *testing.B) {
	table, now := newTable(500_000)
	entries := make([]Entry, 1<<18)
	for i := range entries {
		entries[i] = numbered(uint32(i))
	}
	d := &Datapath{table: table}
	i := 0
	for b.Loop() {
		e := entries[i%len(entries) : i%len(entries)+1]
		if i >= len(entries) && i%len(entries) == 0 {
			b.StopTimer()
			for _, e := range entries {
				table.take(e.Key)
			}
			*now += 2 * quarantineTime
			b.StartTimer()
		}
		if err := d.Install(e); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
