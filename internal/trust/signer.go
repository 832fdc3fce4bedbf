package trust

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// SigningKey gives the private key of the own certificate for signatures on top of the channel. Only Ed25519 keys serve
// for that.
func (c *Credentials) SigningKey() (ed25519.PrivateKey, error) {
	key, ok := c.current.Load().certificate.PrivateKey.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("certificate of %s has a %T; what it sends is signed with Ed25519: issue it anew with an Ed25519 key", c.self, c.current.Load().certificate.PrivateKey)
	}
	return key, nil
}

// PeerSigningKey gives the public key of the peer's verified certificate, the counterpart of SigningKey.
func PeerSigningKey(ctx context.Context) (ed25519.PublicKey, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, &Refusal{Why: "the call came over no channel"}
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil, &Refusal{Why: "the channel is not authenticated"}
	}
	key, ok := info.State.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		id, err := CertificateIdentity(info.State.PeerCertificates[0])
		if err != nil {
			return nil, err
		}
		return nil, &Refusal{id, fmt.Sprintf("its certificate has a %T, an Ed25519 key is needed for its signatures: issue it anew", info.State.PeerCertificates[0].PublicKey)}
	}
	return key, nil
}
