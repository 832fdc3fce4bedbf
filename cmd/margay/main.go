// Command margay operates a domain: get, explain, request, audit, pki, lab, demo.
package main

import (
	"os"

	"github.com/margay-net/margay/internal/operator"
)

func main() { os.Exit(operator.Main()) }
