package trust_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/margay-net/margay/internal/config"
	"github.com/margay-net/margay/internal/trust"
	"github.com/margay-net/margay/internal/trust/pki"
	"github.com/margay-net/margay/internal/trust/trusttest"
)

func TestLoadErrors(t *testing.T) {
	d := newDomain(t)
	other := newDomain(t)
	good := d.Issue(trust.CPS, "cps-1", pki.Options{})
	second := d.Issue(trust.CPS, "cps-2", pki.Options{})
	with := func(change func(*config.TLS)) config.TLS {
		files := good
		change(&files)
		return files
	}
	write := func(mode os.FileMode, content string) config.Path {
		file, err := os.CreateTemp(t.TempDir(), "f")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(content); err != nil {
			t.Fatal(err)
		}
		if err := file.Chmod(mode); err != nil {
			t.Fatal(err)
		}
		return config.Path(file.Name())
	}
	key, err := os.ReadFile(string(good.Key))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		files config.TLS
		want  string
	}{
		"no authority file":   {with(func(f *config.TLS) { f.Authority = "/nowhere/ca.crt" }), "authority: open /nowhere/ca.crt"},
		"empty authority":     {with(func(f *config.TLS) { f.Authority = write(0o600, "nothing") }), "no PEM certificate in it"},
		"a leaf as authority": {with(func(f *config.TLS) { f.Authority = good.Certificate }), "is not an authority's"},
		"other authority":     {with(func(f *config.TLS) { f.Authority = config.Path(other.Dir + "/ca.crt") }), "not signed by an authority of this domain"},
		"no key":              {with(func(f *config.TLS) { f.Key = "/nowhere/x.key" }), "key: stat /nowhere/x.key"},
		"another key":         {with(func(f *config.TLS) { f.Key = second.Key }), "private key does not match public key"},
		"key readable by all": {with(func(f *config.TLS) { f.Key = write(0o644, string(key)) }), "has mode 0644, everybody may use it: chmod 600 it"},
		"other domain":        {with(func(f *config.TLS) { f.Domain = "elsewhere" }), `its domain is "example.margay", this one is "elsewhere"`},
		"expired":             {d.Issue(trust.CPS, "a", pki.Options{NotBefore: time.Now().Add(-48 * time.Hour), Validity: time.Hour}), "its certificate expired at "},
		"not yet valid":       {d.Issue(trust.CPS, "b", pki.Options{NotBefore: time.Now().Add(time.Hour)}), "is not valid before "},
	} {
		if _, err := trust.Load(c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error with %q", what, err, c.want)
		}
	}
	if _, err := trust.Load(good); err != nil {
		t.Errorf("the good files: %v", err)
	}
}

func TestRequire(t *testing.T) {
	c := newDomain(t).Credentials(trust.CPS, "cps-1")
	if err := c.Require(trust.CPS, "cps-1"); err != nil {
		t.Error(err)
	}
	for role, name := range map[trust.Role]string{trust.CPS: "cps-2", trust.PCE: "cps-1"} {
		if err := c.Require(role, name); err == nil || !strings.Contains(err.Error(), "is for spiffe://example.margay/cps/cps-1") {
			t.Errorf("Require(%s, %s) = %v", role, name, err)
		}
	}
}

// replace copies the files of one issue over those of another.
func replace(t *testing.T, to, from config.TLS) {
	t.Helper()
	for target, source := range map[config.Path]config.Path{to.Certificate: from.Certificate, to.Key: from.Key} {
		data, err := os.ReadFile(string(source))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(string(target), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReload(t *testing.T) {
	d := newDomain(t)
	files := d.Issue(trust.CPS, "cps-1", pki.Options{Validity: 24 * time.Hour})
	server := trusttest.Load(t, files)
	s := d.serve("127.0.0.1:0", server)
	client := d.Credentials(trust.Forwarder, "IF-1")
	before := server.Expires()
	works := func() {
		t.Helper()
		if err := call(t, s, client, server.Self(), nil); err != nil {
			t.Fatal(err)
		}
	}
	works()

	for what, bad := range map[string]config.TLS{
		"expired":          d.Issue(trust.CPS, "cps-1", pki.Options{NotBefore: time.Now().Add(-48 * time.Hour), Validity: time.Hour}),
		"another identity": d.Issue(trust.CPS, "cps-2", pki.Options{}),
		"other authority":  newDomain(t).Issue(trust.CPS, "cps-1", pki.Options{}),
	} {
		replace(t, files, bad)
		if err := server.Reload(); err == nil {
			t.Errorf("%s: reloaded", what)
		}
		if !server.Expires().Equal(before) {
			t.Errorf("%s: the refused certificate is in force", what)
		}
		works()
	}
	if err := os.Remove(string(files.Key)); err != nil {
		t.Fatal(err)
	}
	if err := server.Reload(); err == nil {
		t.Error("reloaded without a key")
	}
	works()

	replace(t, files, d.Issue(trust.CPS, "cps-1", pki.Options{Validity: 96 * time.Hour}))
	if err := server.Reload(); err != nil {
		t.Fatal(err)
	}
	if !server.Expires().After(before) {
		t.Error("the new certificate is not in force")
	}
	works()
}

func TestReloadChangesWhomTheServerTrusts(t *testing.T) {
	old, next := newDomain(t), newDomain(t)
	files := old.Issue(trust.CPS, "cps-1", pki.Options{})
	both := config.Path(t.TempDir() + "/both.crt")
	var bundle []byte
	for _, d := range []domain{old, next} {
		data, err := os.ReadFile(d.Dir + "/ca.crt")
		if err != nil {
			t.Fatal(err)
		}
		bundle = append(bundle, data...)
	}
	if err := os.WriteFile(string(both), bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	server := trusttest.Load(t, files)
	s := old.serve("127.0.0.1:0", server)
	// The peer's certificate is the new authority's; it trusts both, as during a rotation.
	peerFiles := next.Issue(trust.Forwarder, "IF-1", pki.Options{})
	peerFiles.Authority = both
	peer := trusttest.Load(t, peerFiles)
	if err := call(t, s, peer, server.Self(), nil); err == nil {
		t.Fatal("the new authority is trusted too early")
	}
	files.Authority = both
	commit, err := server.Prepare(files)
	if err != nil {
		t.Fatal(err)
	}
	if err := call(t, s, peer, server.Self(), nil); err == nil {
		t.Fatal("the new authority is trusted before the commit")
	}
	commit()
	if err := call(t, s, peer, server.Self(), nil); err != nil {
		t.Fatalf("the new authority is not trusted: %v", err)
	}
}
