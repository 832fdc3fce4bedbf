package sealed

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/margay-net/margay/cats"
)

var (
	private = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	secret  = bytes.Repeat([]byte{2}, MinSecret)
	keys    = Keys{
		Ed25519: map[string]ed25519.PublicKey{"sign": private.Public().(ed25519.PublicKey)},
		HMAC:    map[string][]byte{"psk": secret},
	}
)

// signed seals the octets in both ways.
func signed(t *testing.T, octets []byte) []cats.Auth {
	t.Helper()
	a, err := SignEd25519(private, "sign", octets)
	if err != nil {
		t.Fatal(err)
	}
	b, err := SignHMAC(secret, "psk", octets)
	if err != nil {
		t.Fatal(err)
	}
	return []cats.Auth{a, b}
}

func TestSeal(t *testing.T) {
	octets := CanonicalMetricUpdate(metricUpdate())
	for _, auth := range signed(t, octets) {
		t.Run(auth.Algorithm.String(), func(t *testing.T) {
			if err := keys.Verify(octets, auth); err != nil {
				t.Fatal(err)
			}
			refused := func(what string, k Keys, octets []byte, auth cats.Auth) {
				t.Helper()
				if err := k.Verify(octets, auth); !errors.Is(err, cats.ReasonBadSignature) {
					t.Errorf("%s: error %v, want bad-signature", what, err)
				}
			}
			changed := metricUpdate()
			changed.Records[0].Metrics.GAS++
			refused("another update", keys, CanonicalMetricUpdate(changed), auth)
			refused("no keys", Keys{}, octets, auth)

			tampered := auth
			tampered.Value = bytes.Clone(auth.Value)
			tampered.Value[0] ^= 1
			refused("changed value", keys, octets, tampered)
			tampered.Value = auth.Value[:len(auth.Value)-1]
			refused("short value", keys, octets, tampered)
			tampered.Value = nil
			refused("no value", keys, octets, tampered)

			other := auth
			other.KeyID = "other"
			refused("unknown key", keys, octets, other)
			other = auth
			other.Algorithm = cats.AuthNone
			refused("no algorithm", keys, octets, other)
			other.Algorithm = 9
			refused("unknown algorithm", keys, octets, other)
		})
	}
}

// A public key, which everybody may know, never serves as a pre-shared key.
func TestAlgorithmsAreNotConfused(t *testing.T) {
	octets := CanonicalMetricUpdate(metricUpdate())
	public := keys.Ed25519["sign"]
	forged, err := SignHMAC(public, "sign", octets)
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Verify(octets, forged); !errors.Is(err, cats.ReasonBadSignature) {
		t.Fatalf("error %v", err)
	}
}

func TestKeysOfWrongLength(t *testing.T) {
	if _, err := SignHMAC(secret[1:], "psk", nil); err == nil {
		t.Error("a short pre-shared key signs")
	}
	if _, err := SignEd25519(private[1:], "sign", nil); err == nil {
		t.Error("a short private key signs")
	}
	weak := Keys{Ed25519: map[string]ed25519.PublicKey{"sign": {1}}, HMAC: map[string][]byte{"psk": {}}}
	for _, auth := range signed(t, []byte("x")) {
		if err := weak.Verify([]byte("x"), auth); !errors.Is(err, cats.ReasonBadSignature) {
			t.Errorf("%s: error %v", auth.Algorithm, err)
		}
	}
}

// RFC 8032 section 7.1, test 2, and RFC 4231 section 4.8 (test case 7, a key longer than a block).
func TestPublishedVectors(t *testing.T) {
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key := ed25519.NewKeyFromSeed(unhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
	auth, err := SignEd25519(key, "k", []byte{0x72})
	want := unhex("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00")
	if err != nil || !bytes.Equal(auth.Value, want) {
		t.Errorf("ed25519 %x, error %v", auth.Value, err)
	}
	auth, err = SignHMAC(bytes.Repeat([]byte{0xaa}, 131), "k", []byte("This is a test using a larger than block-size key and a larger than "+
		"block-size data. The key needs to be hashed before being used by the HMAC algorithm."))
	want = unhex("9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2")
	if err != nil || !bytes.Equal(auth.Value, want) {
		t.Errorf("hmac %x, error %v", auth.Value, err)
	}
}
