// Package pki is a small certificate authority for labs and first steps: one self-signed authority in a directory, and
// certificates for the programs of its domain. Production brings its own authority; what a certificate must have is
// what Issue puts into it.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/margay-net/margay/internal/trust"
)

const (
	authorityCertificate = "ca.crt"
	authorityKey         = "ca.key"

	// DefaultValidity is how long an issued certificate is valid.
	DefaultValidity   = 365 * 24 * time.Hour
	authorityValidity = 10 * 365 * 24 * time.Hour
	// backdate lets a certificate work at once on a machine whose clock is behind.
	backdate = 5 * time.Minute
)

// Files are where a certificate and its key were written.
type Files struct {
	Certificate string
	Key         string
	Authority   string // the authority's certificate
}

// Init makes an authority for domain in dir, which is created with mode 0700 if it does not exist. It never overwrites
// one: if there is any part of an authority in dir, Init fails and changes nothing.
func Init(dir, domain string) (Files, error) {
	if _, err := trust.NewIdentity(domain, trust.Operator, "any"); err != nil {
		return Files{}, err
	}
	files := authorityFiles(dir)
	for _, path := range []string{files.Certificate, files.Key} {
		if _, err := os.Lstat(path); err == nil {
			return Files{}, fmt.Errorf("%s exists: an authority is never overwritten; use another directory, or remove it yourself (every certificate it signed then becomes useless)", path)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Files{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Files{}, err
	}
	template, err := authorityTemplate(domain)
	if err != nil {
		return Files{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return Files{}, fmt.Errorf("authority for %q: %w", domain, err)
	}
	return files, writePair(files, der, key, false)
}

// Options are what may be chosen of a certificate; the zero value is good.
type Options struct {
	Out       string        // directory to write to; empty: the authority's
	Ed25519   bool          // key type; false: ECDSA P-256, but always Ed25519 for csma and cnma, which sign updates with it
	NotBefore time.Time     // zero: five minutes ago
	Validity  time.Duration // from NotBefore; zero: DefaultValidity; never beyond the authority's own
	Replace   bool          // renew: overwrite the certificate and key that are there
}

// Issue makes a key and a certificate for one program of the authority's domain, and writes <role>-<name>.crt and
// <role>-<name>.key, the key with mode 0600.
func Issue(dir string, role trust.Role, name string, options Options) (Files, error) {
	authority, signer, err := open(dir)
	if err != nil {
		return Files{}, err
	}
	id, err := trust.NewIdentity(authority.URIs[0].Host, role, name)
	if err != nil {
		return Files{}, err
	}
	key, err := newKey(options.Ed25519 || role == trust.CSMA || role == trust.CNMA)
	if err != nil {
		return Files{}, err
	}
	template, err := leafTemplate(id, options, authority)
	if err != nil {
		return Files{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), signer)
	if err != nil {
		return Files{}, fmt.Errorf("certificate for %s: %w", id, err)
	}
	out := options.Out
	if out == "" {
		out = dir
	}
	stem := filepath.Join(out, string(role)+"-"+name)
	files := Files{Certificate: stem + ".crt", Key: stem + ".key", Authority: authorityFiles(dir).Certificate}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return Files{}, err
	}
	return files, writePair(files, der, key, options.Replace)
}

func authorityFiles(dir string) Files {
	certificate := filepath.Join(dir, authorityCertificate)
	return Files{Certificate: certificate, Key: filepath.Join(dir, authorityKey), Authority: certificate}
}

func authorityTemplate(domain string) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "Margay lab authority of " + domain},
		URIs:                  []*url.URL{{Scheme: "spiffe", Host: domain}},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, nil
}

func leafTemplate(id trust.Identity, options Options, authority *x509.Certificate) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	from, validity := options.NotBefore, options.Validity
	if from.IsZero() {
		from = time.Now().Add(-backdate)
	}
	if validity == 0 {
		validity = DefaultValidity
	}
	until := from.Add(validity)
	if until.After(authority.NotAfter) {
		until = authority.NotAfter
	}
	if !until.After(from) {
		return nil, fmt.Errorf("validity %s from %s is nothing: the authority is valid until %s", validity, from.Format(time.RFC3339), authority.NotAfter.Format(time.RFC3339))
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if id.Role.Serves() {
		usage = append(usage, x509.ExtKeyUsageServerAuth)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: string(id.Role) + " " + id.Name},
		URIs:                  []*url.URL{id.URL()},
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           usage,
		BasicConstraintsValid: true,
	}, nil
}

// newSerial gives a positive random number of up to 127 bits (RFC 5280 section 4.1.2.2 wants it unique).
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func newKey(isEd25519 bool) (crypto.Signer, error) {
	if isEd25519 {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// open reads the authority in dir and checks that it is one that Init made, and valid.
func open(dir string) (*x509.Certificate, crypto.Signer, error) {
	files := authorityFiles(dir)
	certificate, key, err := readPair(files)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("no authority in %s: make one with margay pki init (%w)", dir, err)
	}
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !certificate.IsCA || len(certificate.URIs) != 1:
		return nil, nil, fmt.Errorf("%s is not the certificate of an authority that margay pki init made", files.Certificate)
	case time.Now().After(certificate.NotAfter):
		return nil, nil, fmt.Errorf("the authority in %s expired at %s: make a new one in another directory", dir, certificate.NotAfter.Format(time.RFC3339))
	}
	return certificate, key, nil
}
