// Command margay-csma collects the metrics of a site's service contact instances and advertises them to the C-PS.
package main

import "github.com/margay-net/margay/internal/app/csma"

func main() { csma.Daemon.Main() }
