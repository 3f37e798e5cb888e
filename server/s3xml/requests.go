package s3xml

import (
	"strconv"
	"strings"
)

// DeleteRequest is the body of DeleteObjects.
type DeleteRequest struct {
	Quiet   bool
	Objects []DeleteEntry
}

// DeleteEntry names an object to delete. Conditions that weren't given are
// empty.
type DeleteEntry struct {
	Key, VersionID string
	ETag           string // as given, perhaps in quotes
	ModTime        string
	Size           string
}

// CompleteRequest is the body of CompleteMultipartUpload.
type CompleteRequest struct {
	Parts []CompletePart
}

// CompletePart names an uploaded part.
type CompletePart struct {
	Number    int
	ETag      string // as given, perhaps in quotes
	Checksums []PartChecksum
}

// PartChecksum is a checksum that the client expects a part to have.
type PartChecksum struct {
	Algorithm string // "CRC32", ...
	Value     string // base64
}

// root parses data and demands the name of its root.
func root(data []byte, name string) (Node, error) {
	n, err := Parse(data)
	if err != nil {
		return Node{}, err
	}
	if n.Name != name {
		return Node{}, malformed("%s was expected", name)
	}
	return n, nil
}

// ParseDelete reads the body of DeleteObjects. An element that it does not know
// is an error: it might be a condition.
func ParseDelete(data []byte) (DeleteRequest, error) {
	n, err := root(data, "Delete")
	if err != nil {
		return DeleteRequest{}, err
	}
	req := DeleteRequest{Objects: make([]DeleteEntry, 0, len(n.Kids))}
	quiet := false
	for i := range n.Kids {
		switch kid := &n.Kids[i]; kid.Name {
		case "Quiet":
			if quiet {
				return DeleteRequest{}, malformed("two Quiet")
			}
			quiet = true
			if req.Quiet, err = boolean(kid.Text); err != nil {
				return DeleteRequest{}, err
			}
		case "Object":
			entry, err := deleteEntry(kid)
			if err != nil {
				return DeleteRequest{}, err
			}
			req.Objects = append(req.Objects, entry)
		default:
			return DeleteRequest{}, malformed("unknown element in Delete")
		}
	}
	return req, nil
}

func deleteEntry(n *Node) (DeleteEntry, error) {
	var e DeleteEntry
	for i := range n.Kids {
		kid := &n.Kids[i]
		if len(kid.Kids) > 0 {
			return e, malformed("elements in %.20q", kid.Name)
		}
		for j := range i {
			if n.Kids[j].Name == kid.Name {
				return e, malformed("repeated element in Object")
			}
		}
		switch kid.Name {
		case "Key":
			e.Key = kid.Text
		case "VersionId":
			e.VersionID = kid.Text
		case "ETag":
			e.ETag = kid.Text
		case "LastModifiedTime":
			e.ModTime = kid.Text
		case "Size":
			e.Size = kid.Text
		default:
			return e, malformed("unknown element in Object")
		}
	}
	if e.Key == "" {
		return e, malformed("Object without Key")
	}
	return e, nil
}

func boolean(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, malformed("true or false was expected")
}

// ParseComplete reads the body of CompleteMultipartUpload, in the client's
// order, which need not be right.
func ParseComplete(data []byte) (CompleteRequest, error) {
	n, err := root(data, "CompleteMultipartUpload")
	if err != nil {
		return CompleteRequest{}, err
	}
	req := CompleteRequest{Parts: make([]CompletePart, 0, len(n.Kids))}
	for i := range n.Kids {
		if n.Kids[i].Name != "Part" {
			return CompleteRequest{}, malformed("unknown element in CompleteMultipartUpload")
		}
		part, err := completePart(&n.Kids[i])
		if err != nil {
			return CompleteRequest{}, err
		}
		req.Parts = append(req.Parts, part)
	}
	return req, nil
}

func completePart(n *Node) (CompletePart, error) {
	var part CompletePart
	number, etag := false, false
	for i := range n.Kids {
		kid := &n.Kids[i]
		algorithm, checksum := strings.CutPrefix(kid.Name, "Checksum")
		switch {
		case len(kid.Kids) > 0:
			return part, malformed("elements in %.20q", kid.Name)
		case kid.Name == "PartNumber" && !number:
			number = true
			v, err := strconv.Atoi(strings.TrimSpace(kid.Text))
			if err != nil {
				return part, malformed("part number")
			}
			part.Number = v
		case kid.Name == "ETag" && !etag:
			etag = true
			part.ETag = strings.TrimSpace(kid.Text)
		case checksum && algorithm != "":
			part.Checksums = append(part.Checksums, PartChecksum{Algorithm: algorithm, Value: strings.TrimSpace(kid.Text)})
		default:
			return part, malformed("unknown or repeated element in Part")
		}
	}
	if !number || !etag {
		return part, malformed("Part without PartNumber or ETag")
	}
	return part, nil
}

// ParseCreateBucket reads the body of CreateBucket and returns the region that
// it asks for, which may be empty.
func ParseCreateBucket(data []byte) (string, error) {
	n, err := root(data, "CreateBucketConfiguration")
	if err != nil {
		return "", err
	}
	region := ""
	for i := range n.Kids {
		if kid := &n.Kids[i]; kid.Name != "LocationConstraint" || len(kid.Kids) > 0 || i > 0 {
			return "", malformed("unknown or repeated element in CreateBucketConfiguration")
		}
		region = strings.TrimSpace(n.Kids[i].Text)
	}
	return region, nil
}
