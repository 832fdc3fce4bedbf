package trust

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
)

func TestNewIdentity(t *testing.T) {
	for _, role := range Roles() {
		id, err := NewIdentity("example.margay", role, "A-1.b_c")
		if err != nil {
			t.Fatal(err)
		}
		if want := "spiffe://example.margay/" + string(role) + "/A-1.b_c"; id.String() != want || id.URL().String() != want {
			t.Errorf("String %q, URL %q, want %q", id, id.URL(), want)
		}
		back, err := CertificateIdentity(&x509.Certificate{URIs: []*url.URL{id.URL()}})
		if err != nil || back != id {
			t.Errorf("read back %v, %v", back, err)
		}
	}
	for _, bad := range [][3]string{
		{"", "cps", "a"}, {"Example", "cps", "a"}, {"a/b", "cps", "a"}, {"spiffe://a", "cps", "a"}, {strings.Repeat("a", 256), "cps", "a"},
		{"a", "", "a"}, {"a", "CPS", "a"}, {"a", "cps/x", "a"},
		{"a", "cps", ""}, {"a", "cps", "a/b"}, {"a", "cps", "a b"}, {"a", "cps", ".."}, {"a", "cps", "."}, {"a", "cps", "ä"}, {"a", "cps", strings.Repeat("a", 64)},
	} {
		if id, err := NewIdentity(bad[0], Role(bad[1]), bad[2]); err == nil {
			t.Errorf("NewIdentity(%q) = %v", bad, id)
		}
	}
}
