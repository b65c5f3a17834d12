// Package world is a small invented country as an encyclopaedia of 200 short
// articles about its people, companies, towns and rivers, and questions whose
// answers take two or three of them.
//
// [New] makes a world from a seed, [World.Questions] the questions about it,
// [F1] scores answers, and [World.Demonstrate] writes the careless work that a
// model is warmed up on. Nothing in it is a fact about anything real. The package
// does no I/O.
package world

import (
	"fmt"
	"math/rand/v2"
)

// How many articles there are of each kind.
const (
	people    = 100
	companies = 50
	towns     = 35
	rivers    = 15

	// Articles is how many there are.
	Articles = people + companies + towns + rivers
)

// What names are made of. A name is one of each of two lists, and every part is
// a word of the model's vocabulary.
var (
	firstNames = []string{"Ada", "Bela", "Cora", "Dirk", "Ebba", "Finn", "Greta", "Hugo", "Ida", "Joris", "Kaya", "Lars", "Mina", "Nils", "Olga"}
	lastNames  = []string{"Arbo", "Brandt", "Cask", "Dolm", "Egger", "Falk", "Gruen", "Holt", "Ivers", "Jung", "Kern", "Lund", "Moor", "Nagel", "Orth"}

	companyNames = []string{"Amber", "Beacon", "Cedar", "Delta", "Ember", "Falcon", "Garnet", "Harbor", "Indigo", "Juniper"}
	companyKinds = []string{"Mills", "Works", "Foundry", "Press", "Yards", "Looms", "Kilns", "Dairy"}

	townStarts = []string{"Tor", "Vel", "Hom", "Sten", "Ul", "Bran", "Mar", "Os", "Rin"}
	townEnds   = []string{"vik", "berg", "stad", "hafen", "dal", "au"}

	riverStarts = []string{"Sund", "Grau", "Lauter", "Weiss", "Irr"}
	riverEnds   = []string{"bek", "ach", "flod", "strom"}

	trades = []string{"baker", "smith", "printer", "weaver", "clerk", "pilot"}
	goods  = []string{"paper", "glass", "rope", "cheese", "tiles", "cloth"}
	seas   = []string{"the northern sea", "the southern sea", "the great lake"}
)

// Article is one entry of the encyclopaedia.
type Article struct {
	Title string `json:"title"`
	Text  string `json:"text"`
}

// World is what the articles say. It is not changed after [New].
type World struct {
	Articles []Article

	people    []person
	companies []company
	towns     []town
	rivers    []string
}

type person struct {
	name          string
	home, company int
}

type company struct {
	name          string
	town, founder int
}

type town struct {
	name         string
	river, mayor int
}

// New makes the world of a seed.
func New(seed uint64) *World {
	random := rand.New(rand.NewPCG(seed, 0x3a6))
	w := &World{rivers: names(random, rivers, riverStarts, riverEnds, "")}
	for _, name := range names(random, towns, townStarts, townEnds, "") {
		w.towns = append(w.towns, town{name, random.IntN(rivers), random.IntN(people)})
	}
	for _, name := range names(random, companies, companyNames, companyKinds, " ") {
		w.companies = append(w.companies, company{name, random.IntN(towns), random.IntN(people)})
	}
	for _, name := range names(random, people, firstNames, lastNames, " ") {
		w.people = append(w.people, person{name, random.IntN(towns), random.IntN(companies)})
	}
	w.write(random)
	return w
}

// names draws different names.
func names(random *rand.Rand, n int, first, second []string, between string) []string {
	var all []string
	for _, a := range first {
		for _, b := range second {
			all = append(all, a+between+b)
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:n]
}

// write writes the articles, in an order that says nothing.
func (w *World) write(random *rand.Rand) {
	add := func(title, text string) { w.Articles = append(w.Articles, Article{title, text}) }
	for _, p := range w.people {
		add(p.name, fmt.Sprintf("The %s %s comes from %s and works for %s.", pick(random, trades), p.name, w.towns[p.home].name, w.companies[p.company].name))
	}
	for _, c := range w.companies {
		add(c.name, fmt.Sprintf("The company %s makes %s in %s and was founded by %s.", c.name, pick(random, goods), w.towns[c.town].name, w.people[c.founder].name))
	}
	for _, t := range w.towns {
		add(t.name, fmt.Sprintf("The town %s lies on the %s and its mayor is %s.", t.name, w.rivers[t.river], w.people[t.mayor].name))
	}
	for _, r := range w.rivers {
		add(r, fmt.Sprintf("The river %s flows into %s.", r, pick(random, seas)))
	}
	random.Shuffle(len(w.Articles), func(i, j int) { w.Articles[i], w.Articles[j] = w.Articles[j], w.Articles[i] })
}

func pick(random *rand.Rand, list []string) string { return list[random.IntN(len(list))] }

// Words is the vocabulary of a model that reads and writes about such a world.
func Words() []string {
	out := []string{
		// articles
		"The", " comes from", " and works for", "The company", " makes", " in", " and was founded by",
		"The town", " lies on the", " and its mayor is", "The river", " flows into",
		// what agents say
		"search(", answerForm, otherForm, Enough, Nothing,
	}
	for _, k := range kinds {
		out = append(out, k.before, k.after)
	}
	for _, list := range [][]string{firstNames, lastNames, companyNames, companyKinds, townStarts, riverStarts, trades, goods, seas} {
		for _, word := range list {
			out = append(out, " "+word)
		}
	}
	return append(append(out, townEnds...), riverEnds...)
}
