package s3xml

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a document that Parse accepts. The largest that a client sends in
// earnest names 10,000 parts with a handful of elements each.
const (
	maxDepth    = 16
	maxElements = 128 << 10
)

// ErrMalformed is what every error of Parse and of the decoders wraps.
var ErrMalformed = errors.New("malformed document")

// Node is an element. Names are without namespace prefix; attributes are
// dropped. An element has text or kids, never both.
type Node struct {
	Name string
	Text string
	Kids []Node
}

// Parse reads a whole document.
func Parse(data []byte) (Node, error) {
	if !utf8.Valid(data) {
		return Node{}, malformed("not UTF-8")
	}
	p := parser{in: strings.TrimPrefix(string(data), "\uFEFF")}
	if err := p.prolog(); err != nil {
		return Node{}, err
	}
	var root Node
	if err := p.element(&root, 1); err != nil {
		return Node{}, err
	}
	if err := p.misc(); err != nil {
		return Node{}, err
	}
	if p.in != "" {
		return Node{}, malformed("text after the end")
	}
	return root, nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// parser holds the rest of the document. All texts without references are
// slices of it.
type parser struct {
	in       string
	elements int
}

func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.in, prefix)
	if ok {
		p.in = rest
	}
	return ok
}

func (p *parser) space() {
	p.in = strings.TrimLeft(p.in, " \t\r\n")
}

// prolog passes the XML declaration. Any encoding but UTF-8 is refused: what a
// second reader might see in the same bytes must not differ from what we see.
func (p *parser) prolog() error {
	if strings.HasPrefix(p.in, "<?xml") {
		decl, rest, ok := strings.Cut(p.in, "?>")
		if !ok {
			return malformed("declaration without end")
		}
		p.in = rest
		if err := declared(decl); err != nil {
			return err
		}
	}
	return p.misc()
}

func declared(decl string) error {
	attrs := parser{in: strings.TrimPrefix(decl, "<?xml")}
	for {
		name, value, more, err := attrs.attribute()
		switch {
		case err != nil:
			return err
		case !more && attrs.in != "":
			return malformed("declaration")
		case !more:
			return nil
		case name == "encoding" && !strings.EqualFold(value, "UTF-8") && !strings.EqualFold(value, "US-ASCII"):
			return malformed("encoding")
		case name == "version" && value != "1.0":
			return malformed("version")
		}
	}
}

// misc passes white space and comments between elements.
func (p *parser) misc() error {
	for {
		p.space()
		if !p.take("<!--") {
			return nil
		}
		if err := p.comment(); err != nil {
			return err
		}
	}
}

func (p *parser) comment() error {
	body, rest, ok := strings.Cut(p.in, "--")
	if !ok || !strings.HasPrefix(rest, ">") {
		return malformed("comment")
	}
	_ = body
	p.in = rest[1:]
	return nil
}

// element reads one element, its start tag included, into n.
func (p *parser) element(n *Node, depth int) error {
	if depth > maxDepth {
		return malformed("more than %d levels", maxDepth)
	}
	if p.elements++; p.elements > maxElements {
		return malformed("more than %d elements", maxElements)
	}
	if !p.take("<") {
		return malformed("an element was expected")
	}
	full, err := p.name()
	if err != nil {
		return err
	}
	n.Name = local(full)
	for {
		_, _, more, err := p.attribute()
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if p.take("/>") {
		return nil
	}
	if !p.take(">") {
		return malformed("start tag of %.20q", n.Name)
	}
	return p.content(n, full, depth)
}

// content reads up to and with the end tag of the element whose full name is
// given.
func (p *parser) content(n *Node, full string, depth int) error {
	var text strings.Builder
	single := "" // the text, while it is one slice of the document
	add := func(s string) {
		if single == "" && text.Len() == 0 {
			single = s
			return
		}
		text.WriteString(single)
		text.WriteString(s)
		single = ""
	}
	for {
		i := strings.IndexByte(p.in, '<')
		if i < 0 {
			return malformed("no end of %.20q", n.Name)
		}
		if i > 0 {
			s, err := unescape(p.in[:i])
			if err != nil {
				return err
			}
			add(s)
			p.in = p.in[i:]
		}
		switch {
		case p.take("</"):
			n.Text = text.String() + single
			return p.end(n, full)
		case p.take("<!--"):
			if err := p.comment(); err != nil {
				return err
			}
		case p.take("<![CDATA["):
			s, rest, ok := strings.Cut(p.in, "]]>")
			if !ok {
				return malformed("character data without end")
			}
			p.in = rest
			add(newlines(s))
		default:
			n.Kids = append(n.Kids, Node{})
			if err := p.element(&n.Kids[len(n.Kids)-1], depth+1); err != nil {
				return err
			}
		}
	}
}

func (p *parser) end(n *Node, full string) error {
	if !p.take(full) {
		return malformed("wrong end of %.20q", n.Name)
	}
	p.space()
	if !p.take(">") {
		return malformed("end of %.20q", n.Name)
	}
	if len(n.Kids) == 0 {
		return nil
	}
	if strings.Trim(n.Text, " \t\r\n") != "" {
		return malformed("text between elements of %.20q", n.Name)
	}
	n.Text = ""
	return nil
}

// name reads a name with its prefix, of letters, digits and _-.: as all names
// of the protocol are.
func (p *parser) name() (string, error) {
	i := 0
	for i < len(p.in) && nameByte(p.in[i], i == 0) {
		i++
	}
	name := p.in[:i]
	prefix, rest, ok := strings.Cut(name, ":")
	if name == "" || ok && (prefix == "" || rest == "" || strings.Contains(rest, ":")) {
		return "", malformed("name")
	}
	p.in = p.in[i:]
	return name, nil
}

func nameByte(c byte, first bool) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == ':':
		return true
	case c >= '0' && c <= '9', c == '-', c == '.':
		return !first
	}
	return false
}

func local(name string) string {
	return name[strings.IndexByte(name, ':')+1:]
}

// attribute reads one attribute with the space before it. more is false when
// there is none.
func (p *parser) attribute() (name, value string, more bool, err error) {
	before := len(p.in)
	p.space()
	if p.in == "" || !nameByte(p.in[0], true) {
		return "", "", false, nil
	}
	if before == len(p.in) {
		return "", "", false, malformed("attribute without space before it")
	}
	if name, err = p.name(); err != nil {
		return "", "", false, err
	}
	p.space()
	if !p.take("=") {
		return "", "", false, malformed("attribute without value")
	}
	p.space()
	quote := `"`
	if !p.take(quote) {
		if quote = "'"; !p.take(quote) {
			return "", "", false, malformed("attribute without quotes")
		}
	}
	value, rest, ok := strings.Cut(p.in, quote)
	if !ok || strings.Contains(value, "<") {
		return "", "", false, malformed("attribute without end")
	}
	if _, err := unescape(value); err != nil {
		return "", "", false, err
	}
	p.in = rest
	return name, value, true, nil
}

// newlines turns line ends into \n, as XML prescribes for raw ones.
func newlines(s string) string {
	if !strings.Contains(s, "\r") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

// unescape resolves the references of a text.
func unescape(s string) (string, error) {
	if strings.Contains(s, "]]>") {
		return "", malformed("]]> in text")
	}
	s = newlines(s)
	i := strings.IndexByte(s, '&')
	if i < 0 {
		return s, nil
	}
	var out strings.Builder
	out.Grow(len(s))
	for ; i >= 0; i = strings.IndexByte(s, '&') {
		out.WriteString(s[:i])
		ref, rest, ok := strings.Cut(s[i+1:], ";")
		if !ok {
			return "", malformed("reference without end")
		}
		r, err := reference(ref)
		if err != nil {
			return "", err
		}
		out.WriteRune(r)
		s = rest
	}
	out.WriteString(s)
	return out.String(), nil
}

func reference(ref string) (rune, error) {
	switch ref {
	case "amp":
		return '&', nil
	case "lt":
		return '<', nil
	case "gt":
		return '>', nil
	case "quot":
		return '"', nil
	case "apos":
		return '\'', nil
	}
	digits, base := strings.CutPrefix(ref, "#x")
	radix := 16
	if !base {
		if digits, base = strings.CutPrefix(ref, "#"); !base {
			return 0, malformed("unknown entity")
		}
		radix = 10
	}
	n, err := strconv.ParseUint(digits, radix, 32)
	if err != nil || n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
		return 0, malformed("character reference")
	}
	return rune(n), nil
}
