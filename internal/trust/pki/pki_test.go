package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
)

const domain = "example.margay"

func certificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s: no PEM", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func initialized(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	if _, err := Init(dir, domain); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestInit(t *testing.T) {
	dir := initialized(t)
	ca := certificate(t, filepath.Join(dir, "ca.crt"))
	if !ca.IsCA || !ca.MaxPathLenZero || ca.URIs[0].String() != "spiffe://"+domain || ca.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("authority: CA %v, no intermediates %v, URIs %v, usage %v", ca.IsCA, ca.MaxPathLenZero, ca.URIs, ca.KeyUsage)
	}
	for path, mode := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, filepath.Join(dir, "ca.key"): 0o600, filepath.Join(dir, "ca.crt"): 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode(), err, mode)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("directory holds %v (%v), want ca.crt and ca.key alone", entries, err)
	}
}

func TestInitNeverOverwrites(t *testing.T) {
	for _, part := range []string{"ca.crt", "ca.key"} {
		t.Run("with only "+part, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, part)
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Init(dir, domain); err == nil || !strings.Contains(err.Error(), path+" exists: an authority is never overwritten") {
				t.Fatalf("Init = %v", err)
			}
			entries, err := os.ReadDir(dir)
			if data, _ := os.ReadFile(path); string(data) != "precious" || err != nil || len(entries) != 1 {
				t.Fatalf("something changed: %q, %v, %v", data, entries, err)
			}
		})
	}
}

func TestInitRefusesBadDomain(t *testing.T) {
	for _, bad := range []string{"", "Example", "a b", "spiffe://x", "x/y"} {
		dir := filepath.Join(t.TempDir(), "pki")
		if _, err := Init(dir, bad); err == nil {
			t.Errorf("Init(%q) succeeded", bad)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("Init(%q) left a directory", bad)
		}
	}
}

func TestIssue(t *testing.T) {
	dir := initialized(t)
	serials := map[string]bool{}
	for _, role := range trust.Roles() {
		files, err := Issue(dir, role, "one", Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := certificate(t, files.Certificate)
		serials[c.SerialNumber.String()] = true
		if got := c.URIs[0].String(); len(c.URIs) != 1 || got != "spiffe://example.margay/"+string(role)+"/one" {
			t.Errorf("%s: URIs %v", role, c.URIs)
		}
		if serves := slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth); serves != role.Serves() {
			t.Errorf("%s: may accept channels: %v, want %v", role, serves, role.Serves())
		}
		if validity := c.NotAfter.Sub(c.NotBefore); validity != DefaultValidity || time.Since(c.NotBefore) < backdate {
			t.Errorf("%s: valid for %v from %v", role, validity, c.NotBefore)
		}
		if info, err := os.Stat(files.Key); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: key has mode %v (%v)", role, info.Mode(), err)
		}
		if _, err := trust.Load(tlsOf(files)); err != nil {
			t.Errorf("%s: what was issued does not load: %v", role, err)
		}
	}
	if len(serials) != len(trust.Roles()) {
		t.Errorf("%d different serial numbers of %d certificates", len(serials), len(trust.Roles()))
	}
}

func TestIssueKeyTypes(t *testing.T) {
	dir := initialized(t)
	for _, isEd25519 := range []bool{false, true} {
		files, err := Issue(dir, trust.CPS, "x", Options{Out: t.TempDir(), Ed25519: isEd25519})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trust.Load(tlsOf(files)); err != nil {
			t.Error(err)
		}
		key := certificate(t, files.Certificate).PublicKey
		if _, ok := key.(ed25519.PublicKey); ok != isEd25519 {
			t.Errorf("Ed25519 %v gave a %T", isEd25519, key)
		}
		if _, ok := key.(*ecdsa.PublicKey); ok == isEd25519 {
			t.Errorf("Ed25519 %v gave a %T", isEd25519, key)
		}
	}
}

func TestIssueNeverOutlivesTheAuthority(t *testing.T) {
	dir := initialized(t)
	files, err := Issue(dir, trust.CPS, "x", Options{Validity: 100 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if ca, c := certificate(t, files.Authority), certificate(t, files.Certificate); !c.NotAfter.Equal(ca.NotAfter) {
		t.Errorf("valid until %v, the authority until %v", c.NotAfter, ca.NotAfter)
	}
}

func TestIssueReplaces(t *testing.T) {
	dir := initialized(t)
	first, err := Issue(dir, trust.CPS, "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := certificate(t, first.Certificate)
	if _, err := Issue(dir, trust.CPS, "x", Options{}); err == nil || !strings.Contains(err.Error(), "exists: it is not overwritten") {
		t.Fatalf("without Replace: %v", err)
	}
	if !certificate(t, first.Certificate).Equal(before) {
		t.Fatal("the certificate changed without Replace")
	}
	if _, err := Issue(dir, trust.CPS, "x", Options{Replace: true}); err != nil {
		t.Fatal(err)
	}
	if certificate(t, first.Certificate).Equal(before) {
		t.Fatal("Replace changed nothing")
	}
	if _, err := trust.Load(tlsOf(first)); err != nil {
		t.Fatalf("after Replace: %v", err)
	}
}

func TestIssueErrors(t *testing.T) {
	dir := initialized(t)
	for what, c := range map[string]struct {
		dir, name string
		role      trust.Role
		options   Options
		want      string
	}{
		"no authority": {t.TempDir(), "x", trust.CPS, Options{}, "make one with margay pki init"},
		"role":         {dir, "x", "king", Options{}, `role "king": need one of [sci csma`},
		"name":         {dir, "a/b", trust.CPS, Options{}, `name "a/b"`},
		"dots":         {dir, "..", trust.CPS, Options{}, `name ".."`},
		"empty name":   {dir, "", trust.CPS, Options{}, `need 1 to 63 octets`},
		"validity":     {dir, "x", trust.CPS, Options{Validity: -time.Hour}, "is nothing"},
	} {
		if _, err := Issue(c.dir, c.role, c.name, c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error with %q", what, err, c.want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("refused certificates left files: %v, %v", entries, err)
	}
}

func tlsOf(files Files) config.TLS {
	return config.TLS{
		Certificate: config.Path(files.Certificate), Key: config.Path(files.Key), Authority: config.Path(files.Authority), Domain: domain,
	}
}
