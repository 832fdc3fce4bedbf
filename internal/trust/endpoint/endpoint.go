// Package endpoint is where a daemon listens or dials: "host:port" over TCP, or "unix:/absolute/path". A socket file is
// made with mode 0600, and a stale one is removed only if nobody listens on it.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Address is "host:port" (the host may be empty to listen everywhere, the port 0 to let the kernel choose one) or
// "unix:/absolute/path". The zero value is no address.
type Address string

const (
	unixPrefix = "unix:"
	// longestPath is what sun_path of unix(7) holds, less its final zero.
	longestPath = 107
)

// Parse checks s and gives it as an Address.
func Parse(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		switch {
		case !filepath.IsAbs(path):
			return "", fmt.Errorf("address %q: the path after \"unix:\" must be absolute", s)
		case len(path) > longestPath:
			return "", fmt.Errorf("address %q: a socket's path has at most %d octets, this one has %d", s, longestPath, len(path))
		}
		return Address(s), nil
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("address %q: need \"host:port\" or \"unix:/absolute/path\"", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("address %q: port %q is not a number from 0 to 65535", s, port)
	}
	return Address(s), nil
}

// UnmarshalText is Parse, for configuration files.
func (a *Address) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*a = parsed
	return nil
}

// Network gives "unix" or "tcp", and the path or host:port that goes with it, as net.Dial takes them.
func (a Address) Network() (network, address string) {
	if path, ok := strings.CutPrefix(string(a), unixPrefix); ok {
		return "unix", path
	}
	return "tcp", string(a)
}

// Listen opens a listener on a. A socket file gets mode 0600 before anybody can connect and is removed on Close. It
// fails, and leaves the file alone, if the file is not a socket or another process listens on it.
func (a Address) Listen() (net.Listener, error) {
	network, address := a.Network()
	config := net.ListenConfig{}
	if network == "unix" {
		if err := removeStale(address); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", a, err)
		}
		config.Control = private
	}
	// No context: binding does not wait for anything.
	listener, err := config.Listen(context.Background(), network, address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", a, err)
	}
	return listener, nil
}

// private sets the mode of the socket before bind, which gives it to the file that it makes: there is no moment at
// which the file is open to others.
func private(_, _ string, raw syscall.RawConn) error {
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) }); err != nil {
		return err
	}
	return failed
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("the file exists and is not a socket; remove it or choose another path")
	}
	conn, err := net.DialTimeout("unix", path, 5*time.Second)
	if err == nil {
		_ = conn.Close() // only to see whether somebody answers
		return errors.New("another process listens there; stop it first")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether another process listens there: %w", err)
	}
	return os.Remove(path)
}
