package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func readPair(files Files) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s with %s: %w", files.Certificate, files.Key, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("the key in %s cannot sign", files.Key)
	}
	return pair.Leaf, signer, nil
}

// writePair writes both files whole or not at all. A crash in between leaves a key without a certificate, never a
// certificate without its key.
func writePair(files Files, der []byte, key crypto.Signer, replace bool) error {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := writeFile(files.Key, secret, 0o600, replace); err != nil {
		return err
	}
	if err := writeFile(files.Certificate, public, 0o644, replace); err != nil {
		if !replace {
			err = errors.Join(err, os.Remove(files.Key))
		}
		return err
	}
	return nil
}

// writeFile makes path appear at once with all its content; without replace it fails if path exists.
func writeFile(path string, data []byte, mode fs.FileMode, replace bool) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".margay-*")
	if err != nil {
		return err
	}
	defer func() {
		if removed := os.Remove(temporary.Name()); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}()
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	if replace {
		return os.Rename(temporary.Name(), path)
	}
	err = os.Link(temporary.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: it is not overwritten", path)
	}
	return err
}
