//go:build !linux || !(amd64 || arm64)

package integration

import "errors"

func confine(string, []string) error { return errors.ErrUnsupported }

func ringsRefused() error { return errors.ErrUnsupported }
