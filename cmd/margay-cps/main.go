// Command margay-cps is the CATS Path Selector: it selects the instance of each new flow, asks for the path, and owns the
// bindings.
package main

import "github.com/margay-net/margay/internal/app/cps"

func main() { cps.Daemon.Main() }
