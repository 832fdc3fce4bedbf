package forwarder

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/vishvananda/netlink"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/datapath"
	"github.com/margay-net/margay/internal/datapath/kernel"
	"github.com/margay-net/margay/internal/lab/namespace"
	"github.com/margay-net/margay/internal/testenv"
)

// planeAlone opens a data plane with one core port, in a namespace of its own.
func planeAlone(t *testing.T) *datapath.Datapath {
	t.Helper()
	testenv.RequireRoot(t)
	name := fmt.Sprintf("mgf-%d-alone", os.Getpid())
	space, err := namespace.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(space.Close(), namespace.Remove(name)); err != nil {
			t.Error(err)
		}
	})
	pins := filepath.Join("/sys/fs/bpf", name)
	var plane *datapath.Datapath
	err = space.Do(func() (err error) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "core1"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer1"}); err != nil {
			return err
		}
		plane, err = datapath.Open(datapath.Config{PinDir: pins, Ports: []datapath.Port{{Name: "core1", Role: datapath.RoleCore}}, Bindings: 64, Paths: 8, NextHops: 8})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(plane.Close(), datapath.Unload(pins)); err != nil {
			t.Error(err)
		}
	})
	return plane
}

// resolver opens a resolver that ends with the test.
func resolver(t *testing.T) *kernel.Resolver {
	t.Helper()
	r, err := kernel.NewResolver()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

var limits = datapath.Config{Paths: 3, NextHops: 3} // numbers 1 and 2 of each

func srv6(segment string) *cats.Path {
	return &cats.Path{Kind: cats.PathSRv6, Segments: []netip.Addr{netip.MustParseAddr(segment)}}
}

// TestPathsRunOut: without a free number an install is refused with table-full, counted, and logged once a table.
func TestPathsRunOut(t *testing.T) {
	plane := planeAlone(t)
	lines := &lineCounter{}
	full := newExhaustion(slog.New(slog.NewTextHandler(lines, nil)))
	r := newRoutes(plane, resolver(t), netip.MustParseAddr("2001:db8:0:1::1"), limits, full.refused)
	for _, p := range []string{"2001:db8::a", "2001:db8::b"} {
		if _, err := r.usePath(1, srv6(p)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := r.usePath(1, srv6("2001:db8::c")); !errors.Is(err, cats.ReasonTableFull) {
			t.Errorf("a third path: %v", err)
		}
		if id, err := r.useHop(1, netip.MustParseAddr("192.0.2.10")); !errors.Is(err, cats.ReasonTableFull) || id != 0 {
			t.Errorf("a third next hop: %d, %v", id, err)
		}
	}
	for _, table := range []string{tablePaths, tableNextHops} {
		if n := testutil.ToFloat64(full.count.WithLabelValues(table)); n != 2 {
			t.Errorf("%s: %g refusals are counted", table, n)
		}
	}
	if lines.n != 2 {
		t.Errorf("%d lines are logged, want one for each table", lines.n)
	}
	r.dropPath(srv6("2001:db8::a"))
	if _, err := r.usePath(1, srv6("2001:db8::c")); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	if r.fault != nil {
		t.Error(r.fault)
	}
}

type lineCounter struct{ n int }

func (l *lineCounter) Write(p []byte) (int, error) { l.n++; return len(p), nil }

// TestAdoptedPathKeepsItsNumber: a path of an earlier run that cannot be used yet is in the data plane all the same, so
// that nothing else may get its number, nor that of its next hop, before sweep.
func TestAdoptedPathKeepsItsNumber(t *testing.T) {
	plane := planeAlone(t)
	source := netip.MustParseAddr("2001:db8:0:1::1")
	left := srv6("2001:db8::a")
	if err := plane.PutPath(1, datapath.Path{Kind: left.Kind, Segments: left.Segments, Source: source, NextHop: 1}); err != nil {
		t.Fatal(err)
	}
	ended := resolver(t)
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	r := newRoutes(plane, ended, source, limits, func(table string) { t.Errorf("no number of %s", table) })
	if err := r.adopt(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.usePath(1, left); !errors.Is(err, kernel.ErrClosed) {
		t.Fatalf("a path without resolver: %v", err)
	}
	r.resolver = resolver(t)
	for _, c := range []struct {
		path string
		want uint32
	}{{"2001:db8::b", 2}, {"2001:db8::a", 1}} {
		id, err := r.usePath(1, srv6(c.path))
		if err != nil || id != c.want {
			t.Errorf("path to %s: number %d, %v; want %d", c.path, id, err, c.want)
		}
		if hop := r.hops[netip.MustParseAddr(c.path)]; hop == nil || hop.id != c.want {
			t.Errorf("next hop of %s: %+v, want number %d", c.path, hop, c.want)
		}
	}
	r.dropPath(srv6("2001:db8::b"))
	if err := r.sweep(); err != nil {
		t.Fatal(err)
	}
	paths, err := plane.Paths()
	if err != nil || len(paths) != 1 || paths[1].Segments[0] != left.Segments[0] {
		t.Errorf("after sweep the data plane has %v, %v", paths, err)
	}
	if len(r.paths) != 1 || len(r.hops) != 1 || len(r.pathID.taken) != 1 || len(r.hopIDs.taken) != 1 {
		t.Errorf("after sweep there are %d paths, %d next hops; taken %v, %v", len(r.paths), len(r.hops), r.pathID.taken, r.hopIDs.taken)
	}
}
