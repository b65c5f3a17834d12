package credit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Syntax says how rules are written, for help texts.
const Syntax = `identical | last-call | discounted:GAMMA | step-rewards[:GAMMA] | ` +
	`anchor-states[:GAMMA[,WEIGHT[,nostd]]] | linked[:RULE] | role:AGENT[@DIMENSION][=RULE][;AGENT…]`

// Parse reads a rule as [Syntax] says. Gamma and weight are 1 where they are
// left out; AGENT is a regular expression.
func Parse(text string) (Rule, error) {
	name, argument, given := strings.Cut(text, ":")
	fail := func(format string, args ...any) (Rule, error) {
		return nil, fmt.Errorf("%w: rule %q: %s; write it as %s", ErrInvalid, text, fmt.Sprintf(format, args...), Syntax)
	}
	switch name {
	case "identical", "last-call":
		if given {
			return fail("%s takes no argument", name)
		}
		if name == "identical" {
			return Identical{}, nil
		}
		return LastCall{}, nil
	case "discounted", "step-rewards":
		gamma := 1.0
		if given || name == "discounted" {
			var err error
			if gamma, err = strconv.ParseFloat(argument, 64); err != nil || checkGamma(gamma) != nil {
				return fail("%q is not a number between 0 and 1", argument)
			}
		}
		if name == "discounted" {
			return Discounted{gamma}, nil
		}
		return StepRewards{gamma}, nil
	case "anchor-states":
		rule := AnchorStates{Gamma: 1, Weight: 1}
		if given {
			var err error
			if rule, err = parseAnchor(argument); err != nil {
				return fail("%v", err)
			}
		}
		return rule, nil
	case "linked":
		if !given {
			return Linked{}, nil
		}
		rest, err := Parse(argument)
		if err != nil {
			return nil, err
		}
		return Linked{rest}, nil
	case "role":
		return parseRoles(argument, fail)
	}
	return fail("there is no rule of that name")
}

func parseAnchor(argument string) (AnchorStates, error) {
	rule := AnchorStates{Gamma: 1, Weight: 1}
	parts := strings.Split(argument, ",")
	if len(parts) == 3 {
		if parts[2] != "nostd" {
			return rule, fmt.Errorf("%q is not nostd", parts[2])
		}
		rule.WithoutStd = true
		parts = parts[:2]
	}
	if len(parts) > 2 {
		return rule, fmt.Errorf("%d arguments are too many", len(parts))
	}
	var err error
	if rule.Gamma, err = strconv.ParseFloat(parts[0], 64); err != nil || checkGamma(rule.Gamma) != nil {
		return rule, fmt.Errorf("%q is not a number between 0 and 1", parts[0])
	}
	if len(parts) == 2 {
		if rule.Weight, err = strconv.ParseFloat(parts[1], 64); err != nil || !finite(rule.Weight) || rule.Weight < 0 {
			return rule, fmt.Errorf("%q is not a number from 0", parts[1])
		}
	}
	return rule, nil
}

func parseRoles(argument string, fail func(string, ...any) (Rule, error)) (Rule, error) {
	var roles ByRole
	for part := range strings.SplitSeq(argument, ";") {
		agent, rule, hasRule := strings.Cut(part, "=")
		agent, dimension, _ := strings.Cut(agent, "@")
		if agent == "" {
			return fail("an agent has no name")
		}
		pattern, err := regexp.Compile(agent)
		if err != nil {
			return fail("%v", err)
		}
		role := Role{Agent: pattern, Dimension: dimension}
		if hasRule {
			if role.Rule, err = Parse(rule); err != nil {
				return nil, err
			}
		}
		roles = append(roles, role)
	}
	return roles, nil
}
