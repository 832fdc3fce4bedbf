// Package archtest holds the architecture to its rules: imports go from the right of this list to its left only,
//
//	cats ← internal/wire, api ← pure cores ← adapters and services ← internal/app ← cmd
//
// pure packages have no I/O, clock, goroutine or random source, roles do not import one another, adapters neither,
// generated types are seen only where messages come in and go out, every package says what it is, and each daemon links
// only the third-party modules that its role needs. The package has tests only.
package archtest
