package endpoint

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, good := range []string{"10.255.0.10:7443", "[2001:db8::1]:7443", ":0", "localhost:9101", "unix:/run/margay/a.sock"} {
		if a, err := Parse(good); err != nil || string(a) != good {
			t.Errorf("Parse(%q) = %q, %v", good, a, err)
		}
	}
	for bad, want := range map[string]string{
		"":                                  `need "host:port" or "unix:/absolute/path"`,
		"10.255.0.10":                       `need "host:port" or "unix:/absolute/path"`,
		"2001:db8::1:7443":                  `need "host:port" or "unix:/absolute/path"`,
		"host:https":                        `port "https" is not a number from 0 to 65535`,
		"host:70000":                        `port "70000" is not a number from 0 to 65535`,
		"unix:run/a.sock":                   `must be absolute`,
		"unix:/" + strings.Repeat("a", 107): "at most 107 octets, this one has 108",
	} {
		if a, err := Parse(bad); err == nil || !strings.Contains(err.Error(), want) || a != "" {
			t.Errorf("Parse(%q) = %q, %v; want an error with %q", bad, a, err, want)
		}
	}
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	address := Address("unix:" + path)
	first, err := address.Listen()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Fatalf("socket file: %v, %v; want a socket of mode 0600", info.Mode(), err)
	}
	if _, err := address.Listen(); err == nil || !strings.Contains(err.Error(), "another process listens there; stop it first") {
		t.Fatalf("second listener: %v", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the refused second listener broke the first: %v", err)
	}
	conn.Close()

	// A crashed process leaves its file behind.
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the stale socket should be there: %v", err)
	}
	second, err := address.Listen()
	if err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	second.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Fatalf("after Close the socket file should be gone: %v", err)
	}
}

func TestListenLeavesOtherFilesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Address("unix:" + path).Listen(); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Fatalf("Listen = %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "x" {
		t.Fatalf("the file was touched: %q, %v", data, err)
	}
}

func TestListenTCP(t *testing.T) {
	l, err := Address("127.0.0.1:0").Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Address(l.Addr().String()).Listen(); err == nil || !strings.Contains(err.Error(), "listen on "+l.Addr().String()) {
		t.Fatalf("on a taken port: %v", err)
	}
}
