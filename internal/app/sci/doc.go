// Package sci is the margay-sci daemon: it checks the services of one contact instance over TCP or HTTP, and reports
// their slots, computing time and health to the C-SMA of the site.
package sci
