package main

import "context"

func serve(ctx context.Context, p *process, c Config) int { return exitFail }
