"""How often text in an old encoding is read as what it says: memagent's guess against charset-normalizer alone.

    python -m benchmarks.encodings

Each text below is written in its encoding, once and twenty times, as a file of its own. None of them was looked at while
the rules were made. A text counts as misread if any character differs. The former rule of memagent (until decision 32) took
cp1252 where charset-normalizer found it about as likely as its best guess.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from charset_normalizer import from_bytes

from memagent.documents import load
from memagent.errors import DocumentError

TEXTS = (
    ("Invoice 4711: 3 × 25.00 € = 75.00 €, due in 30 days", "cp1252"),
    ("The fee is £1,250 – see clause 7 (“Payment”).", "cp1252"),
    ("Store below 25 °C, ±2 °C.", "cp1252"),
    ("Nous nous réservons le droit de résilier le contrat à tout moment.", "cp1252"),
    ("Die Kündigung bedarf der Schriftform; für Änderungen gilt dasselbe.", "cp1252"),
    ("El comprador pagará la diferencia en el plazo de treinta días según el artículo único.", "cp1252"),
    ("A rescisão não dá direito a indenização; são válidas as cláusulas anteriores.", "cp1252"),
    ("Priset är fastställt på årsbasis och får ändras först efter två månader.", "cp1252"),
    ("Lejeren må ikke ændre på værelset før hævning af aftalen.", "cp1252"),
    ("Perché il contratto è nullo, l'attività non può più proseguire.", "cp1252"),
    ("Päätös tehtiin myöhään illalla, eikä sitä enää käsitelty.", "cp1252"),
    ("Umowa wchodzi w życie z dniem podpisania, a każda zmiana wymaga formy pisemnej.", "cp1250"),
    ("Smlouva může být vypovězena kdykoli během zkušební doby, nejpozději však v září.", "cp1250"),
    ("A szerződés felmondása írásban történik, legkésőbb az év végéig, különben érvénytelen.", "cp1250"),
    ("Ugovor se može raskinuti uz najavu od šest mjeseci, što je uobičajeno kod većih narudžbi.", "cp1250"),
    ("Sözleşme yazılı olarak feshedilebilir; ücret ödenmez ve değişiklik yapılamaz.", "cp1254"),
    ("Sutartis gali būti nutraukta raštu, ne vėliau kaip prieš šešis mėnesius.", "cp1257"),
    ("Договор может быть расторгнут любой стороной с уведомлением за шесть месяцев.", "cp1251"),
    ("Договор может быть расторгнут любой стороной с уведомлением за шесть месяцев.", "koi8-r"),
    ("Угода може бути розірвана будь-якою стороною, якщо інше не передбачено законом.", "cp1251"),
    ("Договорът може да бъде прекратен от всяка страна с писмено предизвестие.", "cp1251"),
    ("Η σύμβαση μπορεί να καταγγελθεί εγγράφως από οποιοδήποτε μέρος μέσα σε έξι μήνες.", "cp1253"),
    ("כל צד רשאי לסיים את ההסכם בהודעה בכתב של שישה חודשים מראש.", "cp1255"),
    ("يجوز لأي طرف إنهاء العقد بإشعار خطي قبل ستة أشهر من نهاية السنة.", "cp1256"),
    ("契約は六か月前に書面で通知することにより、いずれの当事者も解除することができる。", "cp932"),
    ("契約は六か月前に書面で通知することにより、いずれの当事者も解除することができる。", "euc-jp"),
    ("任何一方均可提前六个月以书面形式通知对方解除本合同。", "gb18030"),
    ("任何一方均可提前六個月以書面形式通知對方解除本合約。", "big5"),
    ("어느 당사자든지 6개월 전에 서면으로 통지하여 계약을 해지할 수 있다.", "cp949"),
)


def ours(path: Path) -> str:
    try:
        with load([path]) as document:
            return document.read(0, len(document))
    except DocumentError:
        return ""


def theirs(path: Path) -> str:
    return str(from_bytes(path.read_bytes()).best())


def main() -> None:
    wrong: dict[str, list[str]] = {"memagent": [], "charset-normalizer": []}
    with TemporaryDirectory() as folder:
        for text, codec in TEXTS:
            for times in (1, 20):
                path = Path(folder) / "old.txt"
                whole = f"{text}\n" * times
                path.write_bytes(whole.encode(codec))
                for name, read in (("memagent", ours), ("charset-normalizer", theirs)):
                    if read(path).strip() != whole.strip():
                        wrong[name].append(f"{codec} × {times}: {text[:40]}")
    for name, cases in wrong.items():
        print(f"{name}: {len(cases)} of {2 * len(TEXTS)} misread")
        for case in cases:
            print(f"    {case}")


if __name__ == "__main__":
    main()
