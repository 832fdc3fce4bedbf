// Command margay-cnma tells the C-PS the topology of the network with its measurements.
package main

import "github.com/margay-net/margay/internal/app/cnma"

func main() { cnma.Daemon.Main() }
