"""Random expressions, most of them about the small hours in which clocks are set."""

from random import Random

NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]


def expression(chance: Random) -> str:
    fields = [minutes(chance), hours(chance), *days(chance)]
    if chance.random() < 0.1:
        fields.insert(0, chance.choice(["0", "30", "15,45", "5-7", "*/20", "59"]))
    return " ".join(fields)


def minutes(chance: Random) -> str:
    match chance.randrange(10):
        case 0:
            return f"*/{chance.choice([5, 7, 10, 15, 20, 30, 45, 60])}"
        case 1:
            return chance.choice(["*", "0-10", "50-59/3", "5/15", "10/25"])
        case 2 | 3:
            return ",".join(str(chance.randrange(60)) for _ in range(chance.randint(2, 4)))
        case _:
            return str(chance.choice([0, 0, 1, 15, 30, 45, 59, chance.randrange(60)]))


def hours(chance: Random) -> str:
    match chance.randrange(10):
        case 0:
            return "*"
        case 1:
            return f"*/{chance.choice([2, 3, 5, 6, 12])}"
        case 2:
            return chance.choice(["0-3", "1-5/2", "22-23", "0/7", "2-3"])
        case 3 | 4:
            return ",".join(str(chance.randrange(24)) for _ in range(chance.randint(2, 3)))
        case _:
            return str(chance.choice([0, 1, 2, 2, 3, 23, chance.randrange(24)]))


def days(chance: Random) -> tuple[str, str, str]:
    month = chance.choice(["*"] * 8 + ["*/2", "1-6", ",".join(chance.sample(MONTHS, 4)), chance.choice(MONTHS)])
    match chance.randrange(8):
        case 0:
            return day_of_month(chance), month, "*"
        case 1:
            return "*", month, day_of_week(chance)
        case 2:
            return day_of_month(chance), month, day_of_week(chance)
        case 3:
            return chance.choice(["*/2", "*/3"]), month, day_of_week(chance)
        case _:
            return "*", month, "*"


def day_of_month(chance: Random) -> str:
    special = ["L", "L-3", "L-10", "LW", "15W", "1W", "31W", "28W"]
    ordinary = [str(chance.randint(1, 31)), f"{chance.randint(1, 15)}-{chance.randint(16, 31)}", "1,15,28", "5/4"]
    return ",".join(chance.sample([*special, *ordinary], chance.choice([1, 1, 1, 2])))


def day_of_week(chance: Random) -> str:
    special = [f"{chance.choice(NAMES)}#{chance.randint(1, 5)}", f"{chance.choice(NAMES)}L", "5L", "0#2"]
    ordinary = ["MON-FRI", "FRI-SUN", "0", "7", "6,0", "1-5", "SAT,SUN", "2-6/2", str(chance.randrange(8))]
    text = ",".join(chance.sample([*special, *ordinary], chance.choice([1, 1, 1, 2])))
    return text.replace("FRI-SUN", "5-7")


def plain_expression(chance: Random) -> str:
    """One that every cron reads alike: no steps over days, no special days."""
    day, weekday = chance.choice([("*", "*"), (str(chance.randint(1, 28)), "*"), ("*", str(chance.randrange(7)))])
    return f"{minutes(chance)} {hours(chance)} {day} * {weekday}"
