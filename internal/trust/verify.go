package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/margay-net/margay/cats"
)

// Authorizer tells whether a peer, whose certificate was verified, may have a channel; the error says why not.
type Authorizer func(Identity) error

// Refusal is why a peer was refused. It wraps cats.ReasonUnauthorized.
type Refusal struct {
	Peer Identity // zero where the certificate does not tell
	Why  string
}

// Error names the peer and the cause.
func (r *Refusal) Error() string {
	if r.Peer == (Identity{}) {
		return "peer refused: " + r.Why
	}
	return fmt.Sprintf("%s refused: %s", r.Peer, r.Why)
}

// Unwrap gives cats.ReasonUnauthorized.
func (r *Refusal) Unwrap() error { return cats.ReasonUnauthorized }

// ServerConfig is mutual TLS 1.3 for what accepts channels; allow decides on each verified peer.
func (c *Credentials) ServerConfig(allow Authorizer) *tls.Config {
	config := c.config(x509.ExtKeyUsageClientAuth, allow)
	config.ClientAuth = tls.RequireAnyClientCert
	return config
}

// ClientConfig is mutual TLS 1.3 for what opens a channel to expect, and to nobody else.
func (c *Credentials) ClientConfig(expect Identity) *tls.Config {
	config := c.config(x509.ExtKeyUsageServerAuth, func(peer Identity) error {
		if peer != expect {
			return fmt.Errorf("expected %s", expect)
		}
		return nil
	})
	// The peer is named by its URI, not by a host name; VerifyConnection does all that this switches off.
	config.InsecureSkipVerify = true
	config.ServerName = expect.Domain
	return config
}

// config verifies in VerifyConnection, against the authorities in force at that moment. Tickets are off: a resumed
// session would bring back a peer that has been removed since.
func (c *Credentials) config(usage x509.ExtKeyUsage, allow Authorizer) *tls.Config {
	own := func() *tls.Certificate { return &c.current.Load().certificate }
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own(), nil },
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own(), nil },
		VerifyConnection: func(state tls.ConnectionState) error {
			peer, err := verify(state.PeerCertificates, c.current.Load().authorities, c.self.Domain, usage, time.Now())
			if err != nil {
				return err
			}
			if err := allow(peer); err != nil {
				return &Refusal{peer, err.Error()}
			}
			return nil
		},
	}
}

// verify checks a chain, leaf first, and gives the leaf's identity. Its errors are Refusals.
func verify(chain []*x509.Certificate, authorities *x509.CertPool, domain string, usage x509.ExtKeyUsage, now time.Time) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, &Refusal{Why: "it showed no certificate"}
	}
	leaf := chain[0]
	peer, err := CertificateIdentity(leaf)
	if err != nil {
		return Identity{}, &Refusal{Why: err.Error()}
	}
	if err := checkLeaf(leaf, now); err != nil {
		return Identity{}, &Refusal{peer, err.Error()}
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	options := x509.VerifyOptions{Roots: authorities, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
	if _, err := leaf.Verify(options); err != nil {
		return Identity{}, &Refusal{peer, explain(err, usage)}
	}
	if peer.Domain != domain {
		return Identity{}, &Refusal{peer, fmt.Sprintf("its domain is %q, this one is %q", peer.Domain, domain)}
	}
	return peer, nil
}

func checkLeaf(leaf *x509.Certificate, now time.Time) error {
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("its certificate expired at %s, now is %s: issue a new one", leaf.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("its certificate is not valid before %s, now is %s: check both clocks", leaf.NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case leaf.IsCA:
		return errors.New("its certificate is an authority's, which must not be used for channels")
	case leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return errors.New("its certificate's key usage does not allow digital signatures")
	}
	return nil
}

// explain says in the domain's words what the x509 package found.
func explain(err error, usage x509.ExtKeyUsage) string {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is not signed by an authority of this domain"
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage && usage == x509.ExtKeyUsageServerAuth:
		return "its certificate does not allow it to accept channels (extended key usage)"
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return "its certificate does not allow it to open channels (extended key usage)"
	}
	return err.Error()
}
