package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/margay-net/margay/cats"
	"github.com/margay-net/margay/internal/trust/endpoint"
)

// Name is the name of a node, agent, attachment, tenant or site, checked by cats.ParseName.
type Name string

// UnmarshalText checks the alphabet and length of a name.
func (n *Name) UnmarshalText(text []byte) error {
	s, err := cats.ParseName("name", string(text))
	*n = Name(s)
	return err
}

// Path is a file or directory. In a file it may be relative to that file's directory; loaded, it is absolute.
type Path string

// Common is what the configuration of every daemon begins with; embed it with the tag `yaml:",inline"`.
type Common struct {
	Name    Name    `yaml:"name"` // of the daemon; equals its certificate's
	TLS     TLS     `yaml:"tls"`
	Observe Observe `yaml:"observe"`
	Audit   Audit   `yaml:"audit"`
}

// Shared gives the common part of a configuration that embeds Common.
func (c Common) Shared() Common { return c }

// TLS is where a program's identity comes from: PEM files, re-read on reload.
type TLS struct {
	Certificate Path   `yaml:"certificate"` // of this program, with intermediate ones after it
	Key         Path   `yaml:"key"`         // PKCS #8; not readable by others
	Authority   Path   `yaml:"authority"`   // the certificates that are trusted to sign identities
	Domain      string `yaml:"domain"`      // SPIFFE trust domain
}

// Observe is where a daemon shows its metrics and health, in plain HTTP.
type Observe struct {
	Listen endpoint.Address `yaml:"listen"`
	Log    string           `yaml:"log,omitempty"` // least level that is logged: debug, info (the default), warn or error
}

// Validate checks the level.
func (o *Observe) Validate() []Problem {
	switch o.Log {
	case "", "debug", "info", "warn", "error":
		return nil
	}
	return []Problem{At("log", "level %q: need debug, info, warn or error", o.Log)}
}

// Audit is where the audit log goes, and how much of it is kept.
type Audit struct {
	File    Path `yaml:"file"`
	MaxSize Size `yaml:"max_size,omitempty"` // at which the file is rotated away
	Keep    int  `yaml:"keep,omitempty"`     // files that were rotated away and stay
}

// Defaults sets what holds where the file is silent.
func (a *Audit) Defaults() { a.MaxSize, a.Keep = 64<<20, 8 }

// Validate checks the bounds: a file takes at least what is written at once.
func (a *Audit) Validate() []Problem {
	var problems []Problem
	if a.MaxSize < 4<<20 || a.MaxSize > 1<<40 {
		problems = append(problems, At("max_size", "%s: need 4MiB to 1024GiB", a.MaxSize))
	}
	if a.Keep < 1 || a.Keep > 10_000 {
		problems = append(problems, At("keep", "%d files: need 1 to 10000", a.Keep))
	}
	return problems
}

// Size is a number of octets, written as such or with KiB, MiB or GiB.
type Size int64

var sizeUnits = []struct {
	name  string
	shift uint
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	number, shift := string(text), uint(0)
	for _, u := range sizeUnits {
		if rest, found := strings.CutSuffix(number, u.name); found {
			number, shift = rest, u.shift
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil || n > math.MaxInt64>>shift {
		return fmt.Errorf("need a size such as 65536, 64KiB, 64MiB or 1GiB, have %q", text)
	}
	*s = Size(n << shift)
	return nil
}

// String gives the size in its largest whole unit.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s > 0 && s%(1<<u.shift) == 0 {
			return strconv.FormatInt(int64(s>>u.shift), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Peer is a program that this one dials: where it is, and the name that its certificate must have.
type Peer struct {
	Address endpoint.Address `yaml:"address"`
	Name    Name             `yaml:"name"`
}

// textParser gives the function that sets v from a scalar's text, or nil where v is not made from text.
func textParser(v reflect.Value) func(text, directory string) error {
	switch target := v.Addr().Interface().(type) {
	case *Path:
		return func(s, directory string) error { return target.resolve(s, directory) }
	case *time.Duration:
		return func(s, _ string) error { return parseDuration(target, s) }
	case *cats.CSID:
		return func(s, _ string) error { return assign(target, s, cats.ParseCSID) }
	case *cats.CSCIID:
		return func(s, _ string) error { return assign(target, s, cats.ParseCSCIID) }
	case *cats.Protocol:
		return func(s, _ string) error { return assign(target, s, cats.ParseProtocol) }
	case *netip.Addr:
		return func(s, _ string) error { return assign(target, s, parseAddr) }
	case *netip.AddrPort:
		return func(s, _ string) error { return assign(target, s, parseAddrPort) }
	case *netip.Prefix:
		return func(s, _ string) error { return assign(target, s, parsePrefix) }
	case encoding.TextUnmarshaler: // endpoint.Address, Name …
		return func(s, _ string) error { return target.UnmarshalText([]byte(s)) }
	}
	return nil
}

func assign[T any](target *T, s string, parse func(string) (T, error)) error {
	value, err := parse(s)
	if err == nil {
		*target = value
	}
	return err
}

func (p *Path) resolve(s, directory string) error {
	if s == "" {
		return errors.New("need a path, have nothing")
	}
	if !filepath.IsAbs(s) {
		s = filepath.Join(directory, s)
	}
	*p = Path(filepath.Clean(s))
	return nil
}

func parseDuration(target *time.Duration, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("need a duration such as 250ms, 5s or 2h4m, have %q", s)
	}
	if d < 0 {
		return fmt.Errorf("need a duration of zero or more, have %s", s)
	}
	*target = d
	return nil
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, fmt.Errorf("need an address such as 192.0.2.1 or 2001:db8::1, have %q", s)
	}
	return a, nil
}

func parseAddrPort(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Addr().Zone() != "" || a.Addr().Is4In6() {
		return netip.AddrPort{}, fmt.Errorf("need an address with a port such as 192.0.2.1:443 or [2001:db8::1]:443, have %q", s)
	}
	return a, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("need a prefix such as 192.0.2.0/24 or 2001:db8::/32, have %q", s)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("prefix %s has bits set beyond its length: write %s", s, p.Masked())
	}
	return p, nil
}
