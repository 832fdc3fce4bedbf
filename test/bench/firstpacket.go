package main

import (
	"context"
	"errors"
)

func firstPacketArea(ctx context.Context, b *bench) ([]Result, error) { return nil, errors.New("x") }
