package trust

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/margay-net/margay/internal/config"
)

// Credentials are a program's certificate, key and trusted authorities. They may be reloaded while channels are open;
// every later handshake uses the new ones.
type Credentials struct {
	files   config.TLS
	self    Identity
	current atomic.Pointer[material]
}

// material is what one reading of the files gave.
type material struct {
	certificate tls.Certificate
	authorities *x509.CertPool
}

// Load reads the files and checks that they belong together: the key is the certificate's, an authority signed it, it
// is valid now, and its identity is of the configured domain.
func Load(files config.TLS) (*Credentials, error) {
	material, self, err := read(files)
	if err != nil {
		return nil, err
	}
	c := &Credentials{files: files, self: self}
	c.current.Store(material)
	return c, nil
}

// Self gives the program's own identity.
func (c *Credentials) Self() Identity { return c.self }

// Peer gives the identity of a program with this role and name in the own domain.
func (c *Credentials) Peer(role Role, name string) Identity {
	return Identity{Domain: c.self.Domain, Role: role, Name: name}
}

// Require gives an error unless the own certificate is for this role and name.
func (c *Credentials) Require(role Role, name string) error {
	if want := c.Peer(role, name); c.self != want {
		return fmt.Errorf("certificate %s is for %s, this program is %s: issue one for role %s and name %s", c.files.Certificate, c.self, want, role, name)
	}
	return nil
}

// Reload reads the files again. On an error nothing changes. The identity cannot change: that takes a restart.
func (c *Credentials) Reload() error {
	commit, err := c.Prepare(c.files)
	if err != nil {
		return err
	}
	commit()
	return nil
}

// Prepare reads files and gives the function that puts them in force, so that a reload can be all or nothing.
func (c *Credentials) Prepare(files config.TLS) (commit func(), err error) {
	next, self, err := read(files)
	if err != nil {
		return nil, err
	}
	if self != c.self {
		return nil, fmt.Errorf("certificate %s is for %s, this program runs as %s: restart it to change that", files.Certificate, self, c.self)
	}
	return func() { c.current.Store(next) }, nil
}

// Expires gives the moment until which the own certificate is valid.
func (c *Credentials) Expires() time.Time { return c.current.Load().certificate.Leaf.NotAfter }

func read(files config.TLS) (*material, Identity, error) {
	authorities, err := readAuthorities(string(files.Authority))
	if err != nil {
		return nil, Identity{}, err
	}
	if err := checkPrivate(string(files.Key)); err != nil {
		return nil, Identity{}, err
	}
	pair, err := tls.LoadX509KeyPair(string(files.Certificate), string(files.Key))
	if err != nil {
		return nil, Identity{}, fmt.Errorf("certificate %s with key %s: %w", files.Certificate, files.Key, err)
	}
	self, err := checkOwn(&pair, authorities, files.Domain)
	if err != nil {
		return nil, Identity{}, fmt.Errorf("certificate %s: %w", files.Certificate, err)
	}
	return &material{pair, authorities}, self, nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	pool := x509.NewCertPool()
	count := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("authority %s: certificate %d: %w", path, count+1, err)
		}
		if !certificate.IsCA {
			return nil, fmt.Errorf("authority %s: certificate %d (%s) is not an authority's", path, count+1, certificate.Subject)
		}
		pool.AddCert(certificate)
		count++
	}
	if count == 0 {
		return nil, fmt.Errorf("authority %s: no PEM certificate in it", path)
	}
	return pool, nil
}

func checkPrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return fmt.Errorf("key %s has mode %04o, everybody may use it: chmod 600 it", path, mode)
	}
	return nil
}

func checkOwn(pair *tls.Certificate, authorities *x509.CertPool, domain string) (Identity, error) {
	if _, ok := pair.PrivateKey.(crypto.Signer); !ok {
		return Identity{}, errors.New("its key cannot sign")
	}
	chain := []*x509.Certificate{pair.Leaf}
	for _, der := range pair.Certificate[1:] {
		intermediate, err := x509.ParseCertificate(der)
		if err != nil {
			return Identity{}, fmt.Errorf("intermediate certificate: %w", err)
		}
		chain = append(chain, intermediate)
	}
	// Every program opens channels; only some accept them.
	return verify(chain, authorities, domain, x509.ExtKeyUsageClientAuth, time.Now())
}
