package sealed

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/margay-net/margay/cats"
)

// MinSecret is the least length of a pre-shared key in octets: shorter ones are weaker than the code (RFC 2104 section
// 3).
const MinSecret = sha256.Size

// SignEd25519 signs octets; keyID tells the receiver which public key to take.
func SignEd25519(key ed25519.PrivateKey, keyID string, octets []byte) (cats.Auth, error) {
	if len(key) != ed25519.PrivateKeySize {
		return cats.Auth{}, fmt.Errorf("ed25519 key %q: %d octets, need %d", keyID, len(key), ed25519.PrivateKeySize)
	}
	return cats.Auth{Algorithm: cats.AuthEd25519, KeyID: keyID, Value: ed25519.Sign(key, octets)}, nil
}

// SignHMAC gives the code of octets under a pre-shared key of at least MinSecret octets. Verifiers take it already; sources
// sign with their certificate until pre-shared keys can be configured.
func SignHMAC(secret []byte, keyID string, octets []byte) (cats.Auth, error) {
	if len(secret) < MinSecret {
		return cats.Auth{}, fmt.Errorf("pre-shared key %q: %d octets, need at least %d", keyID, len(secret), MinSecret)
	}
	return cats.Auth{Algorithm: cats.AuthHMACSHA256, KeyID: keyID, Value: code(secret, octets)}, nil
}

func code(secret, octets []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(octets)
	return h.Sum(nil)
}

// Keys are what one source may seal with, by key identifier. A key is only ever used with its own algorithm.
type Keys struct {
	Ed25519 map[string]ed25519.PublicKey
	HMAC    map[string][]byte
}

// Verify checks the seal of octets. Every failure, also a missing seal or an unknown key, is cats.ReasonBadSignature.
func (k Keys) Verify(octets []byte, auth cats.Auth) error {
	switch auth.Algorithm {
	case cats.AuthEd25519:
		key, known := k.Ed25519[auth.KeyID]
		if !known || len(key) != ed25519.PublicKeySize {
			return fmt.Errorf("no ed25519 key %q is configured for this source: %w", auth.KeyID, cats.ReasonBadSignature)
		}
		if !ed25519.Verify(key, octets, auth.Value) {
			return fmt.Errorf("the signature by ed25519 key %q does not verify: %w", auth.KeyID, cats.ReasonBadSignature)
		}
		return nil
	case cats.AuthHMACSHA256:
		secret, known := k.HMAC[auth.KeyID]
		if !known || len(secret) < MinSecret {
			return fmt.Errorf("no pre-shared key %q is configured for this source: %w", auth.KeyID, cats.ReasonBadSignature)
		}
		if !hmac.Equal(code(secret, octets), auth.Value) {
			return fmt.Errorf("the code by pre-shared key %q does not verify: %w", auth.KeyID, cats.ReasonBadSignature)
		}
		return nil
	case cats.AuthNone:
		return fmt.Errorf("the update has neither signature nor code: %w", cats.ReasonBadSignature)
	}
	return fmt.Errorf("seal of unknown algorithm %s: %w", auth.Algorithm, cats.ReasonBadSignature)
}
